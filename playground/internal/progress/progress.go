// SPDX-License-Identifier: Apache-2.0

// Package progress shows a waiting user the running steps and their times: as a live block of
// lines on a terminal, elsewhere as one plain line at the start and the end of each step.
//
// It knows nothing of what the steps are. Its proof is progress_test.go.
package progress

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	redraw = 200 * time.Millisecond
	// reminder is the interval at which a plain log shows that a long step still runs.
	reminder = 30 * time.Second
)

// Printer shows steps. A nil *Printer shows nothing.
type Printer struct {
	out  io.Writer
	live bool
	// width returns the terminal's columns.
	width func() int
	now   func() time.Time

	mu     sync.Mutex
	steps  []*Step // running, in order of start
	drawn  int     // lines of the live block on the terminal
	ticker *time.Ticker
}

// Step is one thing being done. Its methods may be called from any goroutine.
type Step struct {
	p        *Printer
	name     string
	start    time.Time
	text     string
	reminded time.Time
}

// New returns a Printer for a file: live if it is a terminal.
func New(out *os.File) *Printer {
	p := &Printer{out: out, live: term.IsTerminal(int(out.Fd())), now: time.Now}
	p.width = func() int {
		if w, _, err := term.GetSize(int(out.Fd())); err == nil && w > 0 {
			return w
		}
		return 80
	}
	return p
}

// Plain returns a Printer that writes plain lines.
func Plain(out io.Writer) *Printer { return &Printer{out: out, now: time.Now} }

// Step starts a step.
func (p *Printer) Step(name string) *Step {
	if p == nil {
		return &Step{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	s := &Step{p: p, name: name, start: now, reminded: now}
	p.steps = append(p.steps, s)
	if !p.live {
		_, _ = fmt.Fprintf(p.out, "%s ...\n", name)
		return s
	}
	p.draw()
	if p.ticker == nil {
		p.ticker = time.NewTicker(redraw)
		go p.tick(p.ticker)
	}
	return s
}

// Update sets the text that describes the progress of the step.
func (s *Step) Update(text string) {
	if s.p == nil {
		return
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.text = text
	if now := s.p.now(); !s.p.live && now.Sub(s.reminded) >= reminder {
		s.reminded = now
		_, _ = fmt.Fprintf(s.p.out, "%s ... %s (%s)\n", s.name, text, elapsed(now.Sub(s.start)))
	}
}

// End ends the step; a nil error is success. It does not print the error:
// its handler does.
func (s *Step) End(err error) {
	if s.p == nil {
		return
	}
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = slices.DeleteFunc(p.steps, func(other *Step) bool { return other == s })
	outcome := "ok"
	if err != nil {
		outcome = "FAILED"
	}
	p.erase()
	_, _ = fmt.Fprintf(p.out, "%-40s %s (%s)\n", s.name, outcome, elapsed(p.now().Sub(s.start)))
	if p.live {
		p.draw()
	}
	if len(p.steps) == 0 && p.ticker != nil {
		p.ticker.Stop()
		p.ticker = nil
	}
}

func (p *Printer) tick(t *time.Ticker) {
	for range t.C {
		p.mu.Lock()
		if p.ticker != t {
			p.mu.Unlock()
			return
		}
		p.draw()
		p.mu.Unlock()
	}
}

// draw replaces the live block. The caller holds the lock.
func (p *Printer) draw() {
	p.erase()
	width := p.width()
	for _, s := range p.steps {
		line := fmt.Sprintf("%-40s %s  %s", s.name, elapsed(p.now().Sub(s.start)), s.text)
		if len(line) >= width {
			line = line[:width-1]
		}
		_, _ = fmt.Fprintln(p.out, line)
	}
	p.drawn = len(p.steps)
}

func (p *Printer) erase() {
	if p.drawn > 0 {
		_, _ = io.WriteString(p.out, strings.Repeat("\x1b[1A\x1b[2K", p.drawn))
		p.drawn = 0
	}
}

func elapsed(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
