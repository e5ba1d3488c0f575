// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"slices"
	"time"
)

// pace estimates how long a list of builds still takes: by what each took on another machine, and by how this machine compares so far.
type pace struct {
	parts []Component
	now   func() time.Time
	// at is the index of the part that is being built, since which time.
	at    int
	since time.Time
	// expected and took sum up the parts that have ended.
	expected, took time.Duration
}

func newPace(parts []Component, now func() time.Time) *pace {
	return &pace{parts: parts, now: now, at: -1}
}

// start ends the part before, and returns the number of a part, from one, and how many there are.
func (p *pace) start(name string) (number, of int) {
	now := p.now()
	if p.at >= 0 {
		p.expected, p.took = p.expected+p.parts[p.at].duration(), p.took+now.Sub(p.since)
	}
	p.at, p.since = slices.IndexFunc(p.parts, func(c Component) bool { return c.Name == name }), now
	return p.at + 1, len(p.parts)
}

func (c Component) duration() time.Duration { return time.Duration(c.Seconds) * time.Second }

// left describes the time until the last part ends. The part that is being built counts as slow as it has been shown to be, and never as done.
func (p *pace) left() string {
	spent := p.now().Sub(p.since)
	current := p.parts[p.at].duration()
	factor := 1.0
	if done := p.expected; done > 0 {
		factor = float64(p.took) / float64(done)
	}
	if late := float64(p.took+spent) / float64(p.expected+current); late > factor {
		factor = late
	}
	rest := current
	for _, c := range p.parts[p.at+1:] {
		rest += c.duration()
	}
	remain := time.Duration(factor*float64(rest)) - spent
	if remain < time.Minute {
		return "about a minute left"
	}
	return fmt.Sprintf("about %d minutes left", int((remain+time.Minute-1)/time.Minute))
}
