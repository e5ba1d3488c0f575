// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"slices"
	"time"
)

// answered is how long a new peer has for its first echo when keys were agreed.
const answered = 10 * time.Second

// How long an attempt gets, the first, the second and so on: the first time, and for a session that broke off.
var (
	firstWaits = []time.Duration{2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second}
	againWaits = []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second}
)

// knockWaits: where a peer was never reached, the first attempt is repeated so soon. The other end hears of us a moment later than we of
// it, and WireGuard repeats a handshake that was lost only after 5 seconds.
var knockWaits = []time.Duration{200 * time.Millisecond, 400 * time.Millisecond}

// seen is what is known of a tunnel.
type seen struct {
	// reply is when an echo came back last, handshake when keys were agreed; zero for never.
	reply, handshake time.Time
	// patience is how long a session may be without an answer before it is made anew. WireGuard by itself waits 15 seconds.
	patience time.Duration
}

// silent tells whether no echo came back for too long.
func (s seen) silent(now time.Time) bool { return s.reply.IsZero() || now.Sub(s.reply) >= s.patience }

// agreed is until when the other end has time for its first echo, if keys were agreed since the last one; zero if not. An agreement of later
// than now is one of before the clock was set back.
func (s seen) agreed(now time.Time, wait time.Duration) time.Time {
	if !s.handshake.After(s.reply) || s.handshake.Sub(now) > wait {
		return time.Time{}
	}
	return s.handshake.Add(wait)
}

// dialer decides where one peer is dialled. It never touches what works.
type dialer struct {
	// jitter keeps both ends from doing the same at the same time, again and again.
	jitter func(time.Duration) time.Duration

	target netip.AddrPort
	dial   int
	// worked: there was a session, and since then attempts were made.
	worked   bool
	attempts int
	at       time.Time
	wait     time.Duration
	// knocks are those made, knock is when the next one is due; zero for none.
	knocks int
	knock  time.Time
}

// step looks at the tunnel and says when to look again; zero if only something new would make a difference.
func (d *dialer) step(now time.Time, targets []netip.AddrPort, s seen) time.Time {
	if !s.silent(now) {
		d.worked, d.attempts = true, 0
		return s.reply.Add(s.patience)
	}
	if len(targets) == 0 {
		// The peer dials. Taking it away would only make us forget from where.
		d.target = netip.AddrPort{}
		return time.Time{}
	}
	here := slices.Index(targets, d.target)
	switch {
	case d.attempts == 0 && d.worked && now.Before(s.agreed(now, againWaits[0])):
		return s.agreed(now, againWaits[0]) // the peer was faster, and has found a way
	case d.attempts == 0 && d.worked && here >= 0:
		d.attempt(now, d.target, len(targets))
	case here < 0:
		d.attempts, d.knocks = 0, 0
		d.attempt(now, targets[0], len(targets))
	case now.Before(d.next()):
	case !s.handshake.Before(d.at) && now.Before(s.agreed(now, d.echo())):
		return s.agreed(now, d.echo())
	case now.Before(d.at.Add(d.wait)):
		d.dial++
		d.knocks++
		d.planKnock(now)
	default:
		d.attempt(now, targets[(here+1)%len(targets)], len(targets))
	}
	return d.next()
}

// next is when the present attempt is over, or knocks again.
func (d *dialer) next() time.Time {
	if end := d.at.Add(d.wait); d.knock.IsZero() || end.Before(d.knock) {
		return end
	}
	return d.knock
}

// echo is how long the other end has for its first echo when keys were agreed. One that is new may not be ready; one that we have talked to
// has perhaps begun an attempt of its own in the same moment, and by that forgotten what was agreed.
func (d *dialer) echo() time.Duration {
	if d.worked {
		return d.wait
	}
	return answered
}

// planKnock says when to knock next. Two ends whose handshakes cross on the way lose both, so the times differ much.
func (d *dialer) planKnock(now time.Time) {
	d.knock = time.Time{}
	if !d.worked && d.attempts == 1 && d.knocks < len(knockWaits) {
		wait := knockWaits[d.knocks]
		d.knock = now.Add(wait + d.jitter(wait/2))
	}
}

func (d *dialer) attempt(now time.Time, target netip.AddrPort, targets int) {
	waits, round := firstWaits, d.attempts/targets
	if d.worked {
		waits, round = againWaits, d.attempts
	}
	wait := waits[min(round, len(waits)-1)]
	d.target, d.at, d.wait = target, now, wait+d.jitter(wait/5)
	d.attempts++
	d.dial++
	d.planKnock(now)
}
