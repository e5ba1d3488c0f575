// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// clock is a fake clock that the test advances.
type clock struct{ now time.Time }

func (c *clock) time() time.Time { return c.now }

func TestPlain(t *testing.T) {
	var out strings.Builder
	c := &clock{now: time.Unix(0, 0)}
	p := &Printer{out: &out, now: c.time}
	slow := p.Step("build kube")
	quick := p.Step("lay the network")
	c.now = c.now.Add(1500 * time.Millisecond)
	slow.Update("12 packages")
	quick.End(nil)
	c.now = c.now.Add(31 * time.Second)
	slow.Update("400 packages")
	slow.Update("401 packages")
	slow.End(errors.New("broken"))
	want := `build kube ...
lay the network ...
lay the network                          ok (1.5s)
build kube ... 400 packages (32.5s)
build kube                               FAILED (32.5s)
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// On a terminal the block of running steps is erased and drawn again, and no line is so
// long that it wraps: a wrapped line would not be erased whole.
func TestLive(t *testing.T) {
	var out strings.Builder
	c := &clock{now: time.Unix(0, 0)}
	p := &Printer{out: &out, now: c.time, live: true, width: func() int { return 60 }}
	first := p.Step("start cluster rome")
	second := p.Step("start cluster milan")
	first.Update(strings.Repeat("x", 200))
	p.mu.Lock()
	p.draw()
	p.mu.Unlock()
	first.End(nil)
	second.End(nil)
	for line := range strings.SplitSeq(out.String(), "\n") {
		if text := line[strings.LastIndex(line, "\x1b[2K")+1:]; len(text) > 60+4 {
			t.Errorf("line of %d characters: %q", len(text), text)
		}
	}
	// What is left to see: replay the two control sequences that are used.
	var screen []string
	for line := range strings.SplitSeq(out.String(), "\n") {
		for strings.HasPrefix(line, "\x1b[1A\x1b[2K") {
			line = strings.TrimPrefix(line, "\x1b[1A\x1b[2K")
			screen = screen[:len(screen)-1]
		}
		screen = append(screen, line)
	}
	want := "start cluster rome                       ok (0.0s)\nstart cluster milan                      ok (0.0s)\n"
	if got := strings.Join(screen, "\n"); got != want {
		t.Errorf("screen shows\n%s\nwant\n%s", got, want)
	}
}

func TestNilPrinterIsSilent(t *testing.T) {
	var p *Printer
	s := p.Step("anything")
	s.Update("text")
	s.End(nil)
}
