// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"slices"
	"time"
)

// Undecided is how soon to choose again if that is not clear yet.
const Undecided = 50 * time.Millisecond

// ahead is how much later the probes must have left that another lane answered, and for how long it must have answered without a pause. When
// a machine that all lanes pass stood still, their replies come in any order, and to move would only add to the trouble.
const ahead = 100 * time.Millisecond

// Choose gives the lane to use: the present one as long as it is not down, or no other is up and ahead of it. Lanes are those that exist at
// both ends, in the order of preference; without any it stays at the present one. It is not clear while another one is up, but not ahead.
func Choose(present int, lanes []int, stand func(lane int) Stand) (lane int, clear bool) {
	exists, now := slices.Contains(lanes, present), stand(present)
	if exists && now.State != Down {
		return present, true
	}
	clear = true
	for _, lane := range lanes {
		switch other := stand(lane); {
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
