// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"math"
	"time"
)

// State is what is known of a leg.
type State int

// A leg is Unknown until probes came back, or had time enough to.
const (
	Unknown State = iota
	Up
	Down
)

const (
	// lostInterval is how many intervals without a reply make a leg Down, slack what is allowed on top for jitter.
	lostIntervals = 3
	slack         = 20 * time.Millisecond
	// firstReply is how long a new leg may stay Unknown.
	firstReply = time.Second
	// inRow is how many replies in a row make a leg Up.
	inRow = 2
	// eager is how often a leg is probed, at the least, that was never Up and is new: somebody waits for it.
	eager = 50 * time.Millisecond
	// fresh is how long a leg is new.
	fresh = 3 * time.Second
	// remembered is the number of probes that loss and round trip are counted of.
	remembered = 64
	// late is when a probe counts as lost in the statistics.
	late = time.Second
	// mostLate is the longest that a silence is suffered because replies were late before, forgetLate the share of it that is
	// forgotten with each reply on time.
	mostLate   = 500 * time.Millisecond
	forgetLate = 256
	// byChance: a silence is in doubt as long as losing so many probes in a row by chance alone is likelier than this.
	byChance = 1e-6
	// mostLoss and mostPatience bound what that asks for.
	mostLoss     = 0.3
	mostPatience = 5 * time.Second
)

// Pace is how often a leg is probed: while it is up, and while it is not or a reply is overdue.
type Pace struct {
	Up, Other time.Duration
}

// leg judges one way by its probes. Its clock is whatever the caller says it is.
type leg struct {
	pace  Pace
	state State
	// since is when it was made; last, when a reply arrived; sent, when the last probe left.
	since, last, sent time.Time
	// echoed is when the newest probe left that was answered.
	echoed   time.Time
	row      int
	sequence uint64
	// upFrom is the reply that made it Up, heard the newest one.
	upFrom, heard uint64
	// roundTrip is the smoothed mean, late how much more than that a reply has taken lately.
	roundTrip, late time.Duration
	// steady is since when replies have come without a pause.
	steady time.Time
	probes [remembered]probed
}

type probed struct {
	sequence uint64
	sent     time.Time
	// took is how long the reply took, 0 if there is none.
	took time.Duration
}

// Stand is how a leg stands.
type Stand struct {
	State State
	// Last is when a reply arrived, Echoed when the newest probe left that was answered; zero for never. Steady is since when replies
	// have come without a pause.
	Last, Echoed, Steady time.Time
	// Lost is the share of lost probes among the last ones; RoundTrip the mean of those that came back.
	Lost      float64
	RoundTrip time.Duration
	// Patience is how long this leg may be silent before that says something of the other end: Down says only that packets do not pass now.
	Patience time.Duration
}

func newLeg(now time.Time, pace Pace) *leg {
	return &leg{pace: pace, since: now}
}

// interval until the next probe. A reply that is overdue makes the others follow faster, so that one lost probe decides nothing.
func (l *leg) interval(now time.Time) time.Duration {
	switch {
	case l.state == Up && now.Sub(l.last) < l.pace.Up*3/2:
		return l.pace.Up
	case l.upFrom == 0 && now.Sub(l.since) < fresh:
		return min(l.pace.Other, eager)
	}
	return l.pace.Other
}

// due is when the next probe is to be sent.
func (l *leg) due(now time.Time) time.Time {
	if l.sent.IsZero() {
		return now
	}
	at := l.sent.Add(l.interval(now))
	if overdue := l.last.Add(l.pace.Up * 3 / 2); l.state == Up && overdue.After(now) && at.After(overdue) {
		return overdue
	}
	return at
}

// deadline is when judge says something else if nothing arrives; zero for never.
func (l *leg) deadline() time.Time {
	switch l.state {
	case Up:
		return l.last.Add(l.silence())
	case Unknown:
		return l.since.Add(max(firstReply, l.silence()))
	case Down:
	}
	return time.Time{}
}

// silence is how long no reply may come: longer where replies were late before, be it because of the way or of a busy machine at its end.
func (l *leg) silence() time.Duration {
	return lostIntervals*l.pace.Up + slack + min(l.late, mostLate)
}

// timed takes into account how long a reply took, the present mean of which it is compared with.
func (l *leg) timed(took time.Duration) {
	if l.roundTrip == 0 {
		l.roundTrip = took
	}
	l.late = max(l.late-l.late/forgetLate, took-l.roundTrip)
	l.roundTrip += (took - l.roundTrip) / 8
}

// send gives the sequence number of a probe that leaves now.
func (l *leg) send(now time.Time) uint64 {
	l.sequence++
	l.sent = now
	l.probes[l.sequence%remembered] = probed{sequence: l.sequence, sent: now}
	return l.sequence
}

// hear takes a reply and tells whether the state changed.
func (l *leg) hear(now time.Time, sequence uint64) bool {
	probe := &l.probes[sequence%remembered]
	if sequence == 0 || probe.sequence != sequence || probe.took != 0 {
		return false // made up, too old, or twice
	}
	probe.took = max(now.Sub(probe.sent), 1)
	l.timed(probe.took)
	if probe.sent.After(l.echoed) {
		l.echoed = probe.sent
	}
	if l.last.IsZero() || now.Sub(l.last) > l.silence() {
		l.row = 0
	}
	if now.Sub(l.last) > l.pace.Up*3/2+slack {
		l.steady = now
	}
	l.row, l.last, l.heard = l.row+1, now, max(l.heard, sequence)
	if l.state == Up || l.row < inRow {
		return false
	}
	l.state, l.upFrom = Up, sequence
	return true
}

// judge tells whether the state changed because nothing arrived.
func (l *leg) judge(now time.Time) bool {
	if deadline := l.deadline(); deadline.IsZero() || now.Before(deadline) {
		return false
	}
	l.state, l.row = Down, 0
	return true
}

// excuse does not count time in which we ourselves were not running: replies may wait to be read.
func (l *leg) excuse(now time.Time, stalled time.Duration) {
	l.since = earlier(now, l.since.Add(stalled))
	if !l.last.IsZero() {
		l.last = earlier(now, l.last.Add(stalled))
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (l *leg) stand(now time.Time) Stand {
	stand := Stand{State: l.state, Last: l.last, Echoed: l.echoed, Steady: l.steady}
	var judged, lost, back int
	var sum time.Duration
	for _, probe := range l.probes {
		switch {
		case probe.sequence == 0:
		case probe.took != 0:
			judged, back, sum = judged+1, back+1, sum+probe.took
		case now.Sub(probe.sent) > late:
			judged, lost = judged+1, lost+1
		}
	}
	if judged > 0 {
		stand.Lost = float64(lost) / float64(judged)
	}
	if back > 0 {
		stand.RoundTrip = sum / time.Duration(back)
	}
	stand.Patience = l.patience(stand.RoundTrip)
	return stand
}

// patience is longer on a long way, and on one that loses much. What was lost while it was down, or since the last reply, does not count:
// that is what is to be judged.
func (l *leg) patience(roundTrip time.Duration) time.Duration {
	all, lost := 0, 0
	for _, probe := range l.probes {
		if probe.sequence == 0 || probe.sequence < l.upFrom || probe.sequence > l.heard {
			continue
		}
		all++
		if probe.took == 0 {
			lost++
		}
	}
	most := l.silence() + 2*roundTrip
	if lost > 0 {
		needed := math.Ceil(math.Log(byChance) / math.Log(min(mostLoss, float64(lost)/float64(all))))
		hurried := (l.silence() - l.pace.Up*3/2) / l.pace.Other // those that follow the overdue one, which follows the regular one
		most += max(0, time.Duration(needed)-2-hurried) * l.pace.Other
	}
	return min(most, mostPatience)
}
