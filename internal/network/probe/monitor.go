// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"math"
	"time"
)

type State int

// A monitor is Unknown until probes came back, or had enough time to.
const (
	Unknown State = iota
	Up
	Down
)

const (
	// lostIntervals is after how many intervals without a reply a monitor is Down; slack is added for jitter.
	lostIntervals = 3
	slack         = 20 * time.Millisecond
	// firstReply is how long a new monitor may stay Unknown.
	firstReply = time.Second
	// upAfter is how many consecutive replies make a monitor Up.
	upAfter = 2
	// eager is the longest interval between probes while a monitor is new and was never Up, because a user waits for the new peering. It is confirm after the
	// first reply.
	eager, confirm = 25 * time.Millisecond, 10 * time.Millisecond
	// fresh is how long a monitor is new.
	fresh = 3 * time.Second
	// remembered is the number of probes from which loss and round trip are computed.
	remembered = 64
	// late is when a probe counts as lost in the statistics.
	late = time.Second
	// maxLate bounds the extra silence that is tolerated because earlier replies were late. Each reply that is on time reduces
	// that extra by one part in forgetLate.
	maxLate    = 500 * time.Millisecond
	forgetLate = 256
	// byChance is a probability. A silence proves nothing while losing that many probes in a row by chance is likelier than this.
	byChance = 1e-6
	// maxLoss and maxTimeout bound the timeout that follows from byChance.
	maxLoss    = 0.3
	maxTimeout = 5 * time.Second
)

// Pace is the interval between probes: Up while the target is up, Other while it is not or a reply is overdue.
type Pace struct {
	Up, Other time.Duration
}

// monitor judges one target by its probes. The caller provides the clock.
type monitor struct {
	pace  Pace
	state State
	// since is when the monitor was created, last when a reply arrived, sent when the last probe left.
	since, last, sent time.Time
	// echoed is when the newest answered probe left.
	echoed      time.Time
	consecutive int
	sequence    uint64
	// upFrom is the sequence number of the reply that made the monitor Up, newest that of the newest reply.
	upFrom, newest uint64
	// roundTrip is the smoothed mean, late by how much recent replies exceeded it.
	roundTrip, late time.Duration
	// steady is since when replies arrive without a pause.
	steady time.Time
	probes [remembered]probed
}

type probed struct {
	sequence uint64
	sent     time.Time
	// took is how long the reply took; 0 without a reply.
	took time.Duration
}

// Status is what a monitor knows of its target.
type Status struct {
	State State
	// Last is when a reply arrived, Echoed when the newest answered probe left; zero for never. Steady is since when replies arrive
	// without a pause.
	Last, Echoed, Steady time.Time
	// Lost is the share of recent probes that were lost, RoundTrip the mean of those that came back.
	Lost      float64
	RoundTrip time.Duration
	// Timeout is the silence after which the other end is considered gone. Down alone means only that packets do not pass now.
	Timeout time.Duration
}

func newMonitor(now time.Time, pace Pace) *monitor {
	return &monitor{pace: pace, since: now}
}

// interval returns the time until the next probe. While a reply is overdue, probes follow faster, so that one lost probe decides nothing.
func (l *monitor) interval(now time.Time) time.Duration {
	switch {
	case l.state == Up && now.Sub(l.last) < l.pace.Up*3/2:
		return l.pace.Up
	case l.upFrom == 0 && l.consecutive > 0 && now.Sub(l.last) < eager:
		return min(l.pace.Other, confirm)
	case l.upFrom == 0 && now.Sub(l.since) < fresh:
		return min(l.pace.Other, eager)
	}
	return l.pace.Other
}

// due returns when to send the next probe.
func (l *monitor) due(now time.Time) time.Time {
	if l.sent.IsZero() {
		return now
	}
	at := l.sent.Add(l.interval(now))
	if overdue := l.last.Add(l.pace.Up * 3 / 2); l.state == Up && overdue.After(now) && at.After(overdue) {
		return overdue
	}
	return at
}

// deadline returns when judge changes the state if nothing arrives; zero for never.
func (l *monitor) deadline() time.Time {
	switch l.state {
	case Up:
		return l.last.Add(l.silence())
	case Unknown:
		return l.since.Add(max(firstReply, l.silence()))
	case Down:
	}
	return time.Time{}
}

// silence returns how long a monitor stays Up without a reply. It is longer where replies were late before, because of the path or of a
// busy machine at its end.
func (l *monitor) silence() time.Duration {
	return lostIntervals*l.pace.Up + slack + min(l.late, maxLate)
}

// timed records how long a reply took, compared with the mean so far.
func (l *monitor) timed(took time.Duration) {
	if l.roundTrip == 0 {
		l.roundTrip = took
	}
	l.late = max(l.late-l.late/forgetLate, took-l.roundTrip)
	l.roundTrip += (took - l.roundTrip) / 8
}

// send returns the sequence number of a probe that leaves now.
func (l *monitor) send(now time.Time) uint64 {
	l.sequence++
	l.sent = now
	l.probes[l.sequence%remembered] = probed{sequence: l.sequence, sent: now}
	return l.sequence
}

// receive records a reply and reports whether the state changed.
func (l *monitor) receive(now time.Time, sequence uint64) bool {
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
		l.consecutive = 0
	}
	if now.Sub(l.last) > l.pace.Up*3/2+slack {
		l.steady = now
	}
	l.consecutive, l.last, l.newest = l.consecutive+1, now, max(l.newest, sequence)
	if l.state == Up || l.consecutive < upAfter {
		return false
	}
	l.state, l.upFrom = Up, sequence
	return true
}

// judge reports whether the state changed because nothing arrived.
func (l *monitor) judge(now time.Time) bool {
	if deadline := l.deadline(); deadline.IsZero() || now.Before(deadline) {
		return false
	}
	l.state, l.consecutive = Down, 0
	return true
}

// forgive discounts a time in which this process itself did not run: replies may wait to be read.
func (l *monitor) forgive(now time.Time, stalled time.Duration) {
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

func (l *monitor) status(now time.Time) Status {
	status := Status{State: l.state, Last: l.last, Echoed: l.echoed, Steady: l.steady}
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
		status.Lost = float64(lost) / float64(judged)
	}
	if back > 0 {
		status.RoundTrip = sum / time.Duration(back)
	}
	status.Timeout = l.timeout(status.RoundTrip)
	return status
}

// timeout is longer on a path with a long round trip or with much loss. Probes lost while the monitor was down, or since the last reply,
// do not count: they are what the timeout judges.
func (l *monitor) timeout(roundTrip time.Duration) time.Duration {
	all, lost := 0, 0
	for _, probe := range l.probes {
		if probe.sequence == 0 || probe.sequence < l.upFrom || probe.sequence > l.newest {
			continue
		}
		all++
		if probe.took == 0 {
			lost++
		}
	}
	most := l.silence() + 2*roundTrip
	if lost > 0 {
		needed := math.Ceil(math.Log(byChance) / math.Log(min(maxLoss, float64(lost)/float64(all))))
		hurried := (l.silence() - l.pace.Up*3/2) / l.pace.Other // the faster probes that follow the overdue one, within silence
		most += max(0, time.Duration(needed)-2-hurried) * l.pace.Other
	}
	return min(most, maxTimeout)
}
