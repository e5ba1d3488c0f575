// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"slices"
	"time"
)

// Undecided is how soon to choose again after a choice that is not clear.
const Undecided = 50 * time.Millisecond

// ahead is the lead that another lane needs over the present one: how much later the newest answered probe must have left, and for how long
// replies must have come without a pause. After a stall of a machine that all lanes pass, their replies arrive in any order, and a move
// would only add to the trouble.
const ahead = 100 * time.Millisecond

// Choose returns the lane to use. It keeps the present lane until that is Down and another lane is Up and ahead of it. Lanes are those
// that exist at both ends, most preferred first; if there are none, Choose returns the present lane. The choice is not clear while another
// lane is Up, but not ahead.
func Choose(present int, lanes []int, status func(lane int) Status) (lane int, clear bool) {
	exists, now := slices.Contains(lanes, present), status(present)
	if exists && now.State != Down {
		return present, true
	}
	clear = true
	for _, lane := range lanes {
		switch other := status(lane); {
		case other.State != Up:
		case exists && (other.Echoed.Sub(now.Echoed) < ahead || other.Last.Sub(other.Steady) < ahead):
			clear = false
		default:
			return lane, true
		}
	}
	if exists || len(lanes) == 0 {
		return present, clear
	}
	return lanes[0], true
}
