// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"slices"
)

// Choose gives the lane to use: the present one as long as it is not down, or no other is up. Lanes are those that exist at both
// ends, in the order of preference; without any it stays at the present one.
func Choose(present int, lanes []int, state func(lane int) State) int {
	exists := slices.Contains(lanes, present)
	if exists && state(present) != Down {
		return present
	}
	for _, lane := range lanes {
		if state(lane) == Up {
			return lane
		}
	}
	if exists || len(lanes) == 0 {
		return present
	}
	return lanes[0]
}
