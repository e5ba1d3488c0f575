// SPDX-License-Identifier: Apache-2.0

// Package output prints: lines and a spinner while a command runs, boxes for people, and formats for programs. It must not know
// what it prints. Its proof are printable_test.go and the golden files of package cli.
package output

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

// Printer reports the progress of a command: a line for each event, and on a terminal a spinner during each step. The result of
// a command does not go through the printer but to the standard output, so that it can be piped.
type Printer struct {
	out, err io.Writer
	Terminal bool
	// Name under which the user called the program.
	Name string

	mu     sync.Mutex
	text   string // the current step, or empty
	start  time.Time
	frame  int
	stop   chan struct{}   // closed to end the goroutine of the spinner
	warned map[string]bool // warnings of API servers that were printed
}

func New(streams genericiooptions.IOStreams) *Printer {
	file, ok := streams.ErrOut.(*os.File)
	return &Printer{out: streams.Out, err: streams.ErrOut, Terminal: ok && term.IsTerminal(int(file.Fd()))}
}

// QuietOut sends all lines to the standard error, for commands whose output programs read.
func (p *Printer) QuietOut() *Printer {
	return &Printer{out: p.err, err: p.err, Terminal: p.Terminal, Name: p.Name}
}

const (
	levelInfo  = "INFO"
	levelWarn  = "WARN"
	levelError = "ERRO"
)

// turn is the time between two frames of the spinner.
const turn = 100 * time.Millisecond

// line prints a line, above the spinner if there is one.
func (p *Printer) line(to io.Writer, level, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	const indent = "\n        "
	if p.Name != "" && p.Name != "liqoctl" {
		text = strings.ReplaceAll(text, "`liqoctl ", "`"+p.Name+" ")
	}
	fmt.Fprintf(to, " %s   %s\n", level, strings.ReplaceAll(printable.Text(text), "\n", indent))
	p.draw()
}

// Done reports a completed step and ends its spinner.
func (p *Printer) Done(text string) {
	p.Stop()
	p.line(p.out, levelInfo, text)
}

func (p *Printer) Info(text string) { p.line(p.out, levelInfo, text) }

func (p *Printer) Warn(text string) { p.line(p.err, levelWarn, text) }

func (p *Printer) Fail(err error) {
	p.Stop()
	p.line(p.err, levelError, err.Error())
}

// HandleWarningHeader prints each warning of an API server once.
func (p *Printer) HandleWarningHeader(code int, _, text string) {
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
func (p *Printer) Start(text string) {
	if !p.Terminal {
		return
	}
	p.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.start, p.stop = printable.Text(text), time.Now(), make(chan struct{})
	p.draw()
	go p.spin(p.stop)
}

func (p *Printer) spin(stop <-chan struct{}) {
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

func (p *Printer) Stop() {
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

func (p *Printer) draw() {
	if p.text != "" {
		fmt.Fprintf(p.err, "\r\x1b[K %c %s (%s)", frames[p.frame%len(frames)], p.text, time.Since(p.start).Round(turn))
	}
}

func (p *Printer) clear() {
	if p.text != "" {
		fmt.Fprint(p.err, "\r\x1b[K")
	}
}

// Box is a frame with a title and lines.
type Box struct {
	Title string
	Lines []string
}

// Draw writes boxes below each other, all with the same width.
func Draw(to io.Writer, boxes []Box) {
	width := 0
	for _, b := range boxes {
		width = max(width, utf8.RuneCountInString(b.Title)+2)
		for _, line := range b.Lines {
			width = max(width, utf8.RuneCountInString(line))
		}
	}
	for _, b := range boxes {
		fmt.Fprintf(to, "┌─ %s %s┐\n", b.Title, strings.Repeat("─", width-utf8.RuneCountInString(b.Title)-1))
		for _, line := range b.Lines {
			fmt.Fprintf(to, "│ %s%s │\n", line, strings.Repeat(" ", width-utf8.RuneCountInString(line)))
		}
		fmt.Fprintf(to, "└%s┘\n", strings.Repeat("─", width+2))
	}
}
