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

	"liqo.io/liqo/internal/kube/printable"
)

// printer reports the progress of a command: a line for each event, and on a terminal a spinner during each step. The result of
// a command does not go through the printer but to the standard output, so that it can be piped.
type printer struct {
	out, err io.Writer
	terminal bool
	// name under which the user called the program.
	name string

	mu     sync.Mutex
	text   string // the current step, or empty
	start  time.Time
	frame  int
	stop   chan struct{}   // closed to end the goroutine of the spinner
	warned map[string]bool // warnings of API servers that were printed
}

func newPrinter(streams genericiooptions.IOStreams) *printer {
	file, ok := streams.ErrOut.(*os.File)
	return &printer{out: streams.Out, err: streams.ErrOut, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

// quietOut sends all lines to the standard error, for commands whose output programs read.
func (p *printer) quietOut() *printer {
	return &printer{out: p.err, err: p.err, terminal: p.terminal, name: p.name}
}

const (
	levelInfo  = "INFO"
	levelWarn  = "WARN"
	levelError = "ERRO"
)

// turn is the time between two frames of the spinner.
const turn = 100 * time.Millisecond

// line prints a line, above the spinner if there is one.
func (p *printer) line(to io.Writer, level, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	const indent = "\n        "
	if p.name != "" && p.name != "liqoctl" {
		text = strings.ReplaceAll(text, "`liqoctl ", "`"+p.name+" ")
	}
	fmt.Fprintf(to, " %s   %s\n", level, strings.ReplaceAll(printable.Text(text), "\n", indent))
	p.draw()
}

// Done reports a completed step and ends its spinner.
func (p *printer) Done(text string) {
	p.Stop()
	p.line(p.out, levelInfo, text)
}

// Info reports a message.
func (p *printer) Info(text string) { p.line(p.out, levelInfo, text) }

// Warn reports a problem on the standard error.
func (p *printer) Warn(text string) { p.line(p.err, levelWarn, text) }

func (p *printer) fail(err error) {
	p.Stop()
	p.line(p.err, levelError, err.Error())
}

// HandleWarningHeader prints each warning of an API server once.
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

// Start shows a spinner for a step. Without a terminal it prints nothing, because the line of Done names the step as well.
func (p *printer) Start(text string) {
	if !p.terminal {
		return
	}
	p.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.start, p.stop = printable.Text(text), time.Now(), make(chan struct{})
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
		case <-stop: // stopped while this goroutine waited for the lock
		default:
			p.frame++
			p.draw()
		}
		p.mu.Unlock()
	}
}

// Stop ends the spinner without a message.
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
		fmt.Fprintf(p.err, "\r\x1b[K %c %s (%s)", frames[p.frame%len(frames)], p.text, time.Since(p.start).Round(turn))
	}
}

func (p *printer) clear() {
	if p.text != "" {
		fmt.Fprint(p.err, "\r\x1b[K")
	}
}

// box is a frame with a title and lines.
type box struct {
	title string
	lines []string
}

// draw writes boxes below each other, all with the same width.
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
