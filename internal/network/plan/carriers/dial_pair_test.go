// SPDX-License-Identifier: Apache-2.0

package carriers

import (
	"math/rand"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// end is one of two ends of a tunnel. Its packets are lost unless reaches.
type end struct {
	dialer  *dialer
	reaches bool
	dial    int
	// session is the present one; 0 for none. It works if the other end has the same.
	session int
	// offered and accepted are the sessions of handshakes that it has started and answered.
	offered, accepted int
	reply, handshake  time.Time
	// next is when its dialer is called again.
	next time.Time
}

// line is two ends that dial each other, with WireGuard and its echoes between them.
type line struct {
	ends     [2]*end
	now      time.Time
	sessions int
	// takes is how long a packet is on its way, apply how long a decision takes until it is applied.
	takes, apply time.Duration
	due          []event
	// exact: handshakes cross as those of WireGuard do.
	exact bool
}

type event struct {
	at time.Time
	do func()
}

func (l *line) after(wait time.Duration, do func()) {
	l.due = append(l.due, event{l.now.Add(wait), do})
}

// call recreates the peer of an end: its session is dropped, and a handshake starts.
func (l *line) call(e, other *end) {
	e.session, e.handshake, e.offered, e.accepted = 0, time.Time{}, 0, 0
	dial := e.dial
	if !e.reaches {
		return
	}
	if l.exact {
		l.handshake(e, other)
		return
	}
	l.after(l.takes, func() {
		l.sessions++
		session := l.sessions
		other.session, other.handshake = session, l.now
		l.after(l.takes, func() {
			if e.dial == dial {
				e.session, e.handshake = session, l.now
			}
		})
	})
}

// handshake is as in WireGuard: an end drops the handshakes of peers that it does not know yet, gives its own up when it receives that of the other
// end, and has a session only when the first packet in it arrives.
func (l *line) handshake(e, other *end) {
	l.sessions++
	session := l.sessions
	e.offered = session
	l.after(l.takes, func() {
		if other.dial == 0 {
			return
		}
		other.offered, other.accepted = 0, session
		l.after(l.takes, func() {
			if e.offered != session {
				return
			}
			e.session, e.handshake = session, l.now
			l.after(l.takes, func() {
				if other.accepted == session {
					other.session, other.handshake = session, l.now
				}
			})
		})
	})
}

// echo sends a probe, which the other end answers if both have the same session.
func (l *line) echo(e, other *end) {
	session := e.session
	l.after(l.takes, func() {
		if session != 0 && other.session == session {
			l.after(l.takes, func() {
				if e.session == session {
					e.reply = l.now
				}
			})
		}
	})
}

// run simulates until both ends receive echoes again, and returns how long that took, at most most.
func (l *line) run(most time.Duration) time.Duration {
	from, target := l.now, []netip.AddrPort{a}
	const timeout = 1520 * time.Millisecond
	for tick := 0; l.now.Sub(from) < most; tick++ {
		for i, e := range l.ends {
			other := l.ends[1-i]
			if tick%200 == i*100 {
				l.echo(e, other)
			}
			if l.now.Before(e.next) {
				continue
			}
			e.next = e.dialer.step(l.now, target, Seen{Reply: e.reply, Handshake: e.handshake, Timeout: timeout})
			if dial := e.dialer.dial; dial != e.dial {
				l.after(l.apply, func() {
					e.dial = dial
					l.call(e, other)
				})
			}
		}
		l.now = l.now.Add(time.Millisecond)
		var now []event
		l.due = slices.DeleteFunc(l.due, func(one event) bool {
			if one.at.After(l.now) {
				return false
			}
			now = append(now, one)
			return true
		})
		for _, one := range now {
			one.do()
		}
		if l.ends[0].reply.After(from) && l.ends[1].reply.After(from) {
			return l.now.Sub(from)
		}
	}
	return most
}

// The path between two ends is gone, and only one of them can reach the other: the attempts of the other must not undo what the first achieves.
func TestDialersThatCross(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	var all []time.Duration
	for range 1000 {
		l := &line{now: start.Add(time.Hour), takes: time.Duration(1+random.Intn(40)) * ms, apply: time.Duration(1+random.Intn(60)) * ms}
		for i := range l.ends {
			d := newDialer()
			d.jitter = func(most time.Duration) time.Duration { return time.Duration(random.Int63n(int64(most) + 1)) }
			d.target, d.worked, d.dial = a, true, 1
			l.ends[i] = &end{dialer: d, reaches: i == 0, dial: 1, reply: l.now.Add(-time.Duration(random.Intn(200)) * ms), handshake: l.now.Add(-time.Minute)}
		}
		all = append(all, l.run(time.Minute))
	}
	slices.Sort(all)
	t.Logf("half of them within %v, 99 %% within %v, all within %v", all[500], all[990], all[999])
	if all[500] > 2*time.Second || all[999] > 6*time.Second {
		t.Errorf("half of them within %v, all within %v; want 2 s and 6 s", all[500], all[999])
	}
}

// Two ends that are new to each other: the second one learns of the first up to 300 ms later, and drops its handshakes until then.
func TestDialersFirstContact(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	var all []time.Duration
	for range 1000 {
		l := &line{exact: true, now: start, takes: time.Duration(1+random.Intn(40)) * ms, apply: time.Duration(5+random.Intn(30)) * ms}
		later := time.Duration(random.Intn(300)) * ms
		for i := range l.ends {
			d := newDialer()
			d.jitter = func(most time.Duration) time.Duration { return time.Duration(random.Int63n(int64(most) + 1)) }
			l.ends[i] = &end{dialer: d, reaches: true, next: start.Add(time.Duration(i) * later)}
		}
		all = append(all, l.run(time.Minute)-later)
	}
	slices.Sort(all)
	t.Logf("half of them within %v of the second, 90 %% within %v, 99 %% within %v, all within %v", all[500], all[900], all[990], all[999])
	if all[500] > 400*ms || all[999] > 6*time.Second {
		t.Errorf("half of them within %v, all within %v; want 400 ms and 6 s", all[500], all[999])
	}
}
