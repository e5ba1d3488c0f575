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

	mu    sync.Mutex
	spin  chan struct{} // closed to end the spinner
	ended chan struct{} // closed by the spinner at its end
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

func (p *printer) line(to io.Writer, level, text string) {
	p.Stop()
	indent := "\n        "
	fmt.Fprintf(to, " %s   %s\n", level, strings.ReplaceAll(text, "\n", indent))
}

// Done says what was achieved.
func (p *printer) Done(text string) { p.line(p.out, levelInfo, text) }

// Info tells something by the way.
func (p *printer) Info(text string) { p.line(p.out, levelInfo, text) }

// Warn tells what deserves attention.
func (p *printer) Warn(text string) { p.line(p.err, levelWarn, text) }

func (p *printer) fail(err error) { p.line(p.err, levelError, err.Error()) }

// Start says what is being waited for.
func (p *printer) Start(text string) {
	p.Stop()
	if !p.terminal {
		return // the line that ends the wait says as much
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spin, p.ended = make(chan struct{}), make(chan struct{})
	go spinner(p.err, text, p.spin, p.ended)
}

func spinner(to io.Writer, text string, stop <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	for i := 0; ; i++ {
		fmt.Fprintf(to, "\r\x1b[K %c %s (%s)", frames[i%len(frames)], text, time.Since(began).Round(100*time.Millisecond))
		select {
		case <-stop:
			fmt.Fprint(to, "\r\x1b[K")
			return
		case <-tick.C:
		}
	}
}

// Stop ends the spinner without a word.
func (p *printer) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spin != nil {
		close(p.spin)
		<-p.ended
		p.spin = nil
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
