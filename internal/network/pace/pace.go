// SPDX-License-Identifier: Apache-2.0

// Package pace decides when a change of what a peer states counts here. Each change that counts is written on every node, and costs the peer nothing but a
// signature, so a peer that keeps changing must not decide how often we write. A change that stands alone counts at once: until both ends use it, no
// packet passes.
//
// It must not know what is stated, nor the clock: the caller keeps the memory and passes the time. The proof is TestHostile.
package pace

import "time"

// Stand is how long a change has to stand after an earlier one.
const Stand = time.Minute

// Memory is what is remembered of one value that a peer states. The zero value remembers nothing, as after a restart.
type Memory[T comparable] struct {
	// Seen is what the peer stated last.
	Seen T
	// Since is when that changed, or began to count; zero if it never changed.
	Since time.Time
	// Unsteady: the peer changed it again too soon, and has not stated the same for Stand since.
	Unsteady bool
}

// Settle returns the value to use, given the one in use and the one that the peer states now. Nothing in use, the zero value: what is stated counts
// at once, and so does the first change after Stand without one. Every other change counts once it has stood for Stand, and what is in use stays
// until then. So changes that count are at least Stand apart, and a peer that never stands still changes nothing. After a restart the first change
// has to stand as well.
//
// The next call must get the returned memory, after again at the latest; 0: no such time.
func Settle[T comparable](m Memory[T], used, stated T, now time.Time) (use T, next Memory[T], again time.Duration) {
	var none T
	if used == none {
		return stated, Memory[T]{Seen: stated}, 0
	}
	if m.Seen == none {
		m = Memory[T]{Seen: stated, Since: now, Unsteady: stated != used}
	}
	if now.Before(m.Since) {
		m.Since = now // the clock was set back
	}
	stood := now.Sub(m.Since) >= Stand
	if stated != m.Seen {
		m = Memory[T]{Seen: stated, Since: now, Unsteady: !stood}
		stood = false
	}
	switch {
	case m.Unsteady && !stood:
		return used, m, m.Since.Add(Stand).Sub(now)
	case m.Unsteady && stated != used:
		m.Since = now // it begins to count
	}
	m.Unsteady = false
	return stated, m, 0
}
