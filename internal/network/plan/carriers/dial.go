// SPDX-License-Identifier: Apache-2.0

package carriers

import (
	"net/netip"
	"slices"
	"time"
)

// answered is the time that a new peer has for its first echo after a handshake.
const answered = 10 * time.Second

// How long the first, second and further attempts last: firstWaits for a peer that was never reached, retryWaits for a lost session.
var (
	firstWaits = []time.Duration{2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second}
	retryWaits = []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second}
)

// firstRetry is how long the first attempt for a lost session lasts if there is another way to the peer. TCP repeats a packet 3 seconds after the last one
// that passed, and then not before 6 seconds: the session should work before that, and a session is lost only 1.5 to 2 seconds after its last echo.
const firstRetry = 500 * time.Millisecond

// probeWaits are the pauses after which the first attempt is repeated for a peer that was never reached. The other end learns of us a moment
// later than we of it, and WireGuard repeats a lost handshake only after 5 seconds.
var probeWaits = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}

// Seen is what is known of a tunnel.
type Seen struct {
	// Reply is when the last echo came back, handshake when the last handshake was; zero for never.
	Reply, Handshake time.Time
	// Timeout is how long a session may stay without an echo before it is recreated. WireGuard alone waits 15 seconds.
	Timeout time.Duration
}

// Silent reports whether no echo came back within the timeout.
func (s Seen) Silent(now time.Time) bool { return s.Reply.IsZero() || now.Sub(s.Reply) >= s.Timeout }

// agreed returns until when the other end has time for its first echo, if there was a handshake since the last echo; zero if not. A
// handshake in the future happened before the clock was set back.
func (s Seen) agreed(now time.Time, wait time.Duration) time.Time {
	if !s.Handshake.After(s.Reply) || s.Handshake.Sub(now) > wait {
		return time.Time{}
	}
	return s.Handshake.Add(wait)
}

// dialer decides where and when one peer is dialled. It never touches a working session.
type dialer struct {
	// jitter keeps the two ends from retrying in lockstep.
	jitter func(time.Duration) time.Duration

	target netip.AddrPort
	dial   int
	// worked: there was a session. attempts counts the attempts since then.
	worked   bool
	attempts int
	at       time.Time
	wait     time.Duration
	// probes counts the repetitions of the first attempt; probe is when the next one is due, zero for none.
	probes int
	probe  time.Time
}

// step decides on the observed state and returns when to call it again; zero if only a new input makes a difference.
func (d *dialer) step(now time.Time, targets []netip.AddrPort, s Seen) time.Time {
	if !s.Silent(now) {
		d.worked, d.attempts = true, 0
		return s.Reply.Add(s.Timeout)
	}
	if len(targets) == 0 {
		// The peer dials. Recreating it would only forget its address.
		d.target = netip.AddrPort{}
		return time.Time{}
	}
	here := slices.Index(targets, d.target)
	switch {
	case d.attempts == 0 && d.worked && now.Before(s.agreed(now, retryWaits[0])):
		return s.agreed(now, retryWaits[0]) // the peer dialled first, and has a working path
	case d.attempts == 0 && d.worked && here >= 0:
		d.attempt(now, d.target, len(targets))
	case here < 0:
		d.attempts, d.probes = 0, 0
		d.attempt(now, targets[0], len(targets))
	case now.Before(d.next()):
	case !s.Handshake.Before(d.at) && now.Before(s.agreed(now, d.echo())):
		return s.agreed(now, d.echo())
	case now.Before(d.at.Add(d.wait)):
		d.dial++
		d.probes++
		d.planProbe(now)
	default:
		d.attempt(now, targets[(here+1)%len(targets)], len(targets))
	}
	return d.next()
}

// next returns when the present attempt is over or is repeated.
func (d *dialer) next() time.Time {
	if end := d.at.Add(d.wait); d.probe.IsZero() || end.Before(d.probe) {
		return end
	}
	return d.probe
}

// echo returns how long the other end has for its first echo after a handshake. A new peer may not be ready yet. A known peer may have
// started an attempt of its own in the same moment, which dropped the session that was agreed.
func (d *dialer) echo() time.Duration {
	if d.worked {
		return d.wait
	}
	return answered
}

// planProbe schedules the next repetition. When the handshakes of both ends cross on the way, both are lost, so the jitter is large.
func (d *dialer) planProbe(now time.Time) {
	d.probe = time.Time{}
	if !d.worked && d.attempts == 1 && d.probes < len(probeWaits) {
		wait := probeWaits[d.probes]
		d.probe = now.Add(wait + d.jitter(wait/2))
	}
}

func (d *dialer) attempt(now time.Time, target netip.AddrPort, targets int) {
	waits, round := firstWaits, d.attempts/targets
	if d.worked {
		waits, round = retryWaits, d.attempts
	}
	wait := waits[min(round, len(waits)-1)]
	if d.worked && d.attempts == 0 && targets > 1 {
		wait = firstRetry
	}
	d.target, d.at, d.wait = target, now, wait+d.jitter(wait/5)
	d.attempts++
	d.dial++
	d.planProbe(now)
}
