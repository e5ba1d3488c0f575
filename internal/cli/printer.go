// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// printer talks to the user: a line for each thing that happened; on a terminal, a spinner while something is awaited.
// What a command was asked for goes to the standard output by other ways, so that it can be piped.
type printer struct {
	out, err io.Writer
	terminal bool
	// name is how the user calls the program.
	name string

	mu     sync.Mutex
	text   string // what is awaited; empty if nothing is
	began  time.Time
	frame  int
	stop   chan struct{}   // closed to end the goroutine that turns the spinner
	warned map[string]bool // what API servers have warned of
}

func newPrinter(streams genericiooptions.IOStreams) *printer {
	file, ok := streams.ErrOut.(*os.File)
	return &printer{out: streams.Out, err: streams.ErrOut, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

// quietOut sends all lines to the standard error, for commands whose output is read by programs.
func (p *printer) quietOut() *printer {
	return &printer{out: p.err, err: p.err, terminal: p.terminal}
}

const (
	levelInfo  = "INFO"
	levelWarn  = "WARN"
	levelError = "ERRO"
)

// turn is how long the spinner shows the same.
const turn = 100 * time.Millisecond

// line prints one, above the spinner if something is awaited.
func (p *printer) line(to io.Writer, level, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	const indent = "\n        "
	if p.name != "" && p.name != "liqoctl" {
		text = strings.ReplaceAll(text, "`liqoctl ", "`"+p.name+" ")
	}
	fmt.Fprintf(to, " %s   %s\n", level, strings.ReplaceAll(text, "\n", indent))
	p.draw()
}

// Done says what was achieved, and ends the wait for it.
func (p *printer) Done(text string) {
	p.Stop()
	p.line(p.out, levelInfo, text)
}

// Info tells something by the way.
func (p *printer) Info(text string) { p.line(p.out, levelInfo, text) }

// Warn tells what deserves attention.
func (p *printer) Warn(text string) { p.line(p.err, levelWarn, text) }

func (p *printer) fail(err error) {
	p.Stop()
	p.line(p.err, levelError, err.Error())
}

// HandleWarningHeader tells what an API server warns of, once.
func (p *printer) HandleWarningHeader(code int, _, text string) {
	p.mu.Lock()
	known := code != 299 || text == "" || p.warned[text]
	if !known {
		if p.warned == nil {
			p.warned = map[string]bool{}
		}
		p.warned[text] = true
	}
	p.mu.Unlock()
	if !known {
		p.Warn("API server: " + text)
	}
}

// Start says what is being waited for. Without a terminal the line that ends the wait says as much.
func (p *printer) Start(text string) {
	if !p.terminal {
		return
	}
	p.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.began, p.stop = text, time.Now(), make(chan struct{})
	p.draw()
	go p.spin(p.stop)
}

func (p *printer) spin(stop <-chan struct{}) {
	tick := time.NewTicker(turn)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		select {
		case <-stop: // while this waited for the lock
		default:
			p.frame++
			p.draw()
		}
		p.mu.Unlock()
	}
}

// Stop ends the wait without a word.
func (p *printer) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text == "" {
		return
	}
	close(p.stop)
	p.clear()
	p.text = ""
}

var frames = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

func (p *printer) draw() {
	if p.text != "" {
		fmt.Fprintf(p.err, "\r\x1b[K %c %s (%s)", frames[p.frame%len(frames)], p.text, time.Since(p.began).Round(turn))
	}
}

func (p *printer) clear() {
	if p.text != "" {
		fmt.Fprint(p.err, "\r\x1b[K")
	}
}

// box is a frame with a title.
type box struct {
	title string
	lines []string
}

// draw writes boxes below each other, all of one width.
func draw(to io.Writer, boxes []box) {
	width := 0
	for _, b := range boxes {
		width = max(width, utf8.RuneCountInString(b.title)+2)
		for _, line := range b.lines {
			width = max(width, utf8.RuneCountInString(line))
		}
	}
	for _, b := range boxes {
		fmt.Fprintf(to, "┌─ %s %s┐\n", b.title, strings.Repeat("─", width-utf8.RuneCountInString(b.title)-1))
		for _, line := range b.lines {
			fmt.Fprintf(to, "│ %s%s │\n", line, strings.Repeat(" ", width-utf8.RuneCountInString(line)))
		}
		fmt.Fprintf(to, "└%s┘\n", strings.Repeat("─", width+2))
	}
}
