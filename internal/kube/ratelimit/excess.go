// SPDX-License-Identifier: Apache-2.0

package ratelimit

// Excess returns which of all, oldest first, has to end, -1 for none: if there are more than most, or more than mostEach of one client, the oldest one of the client
// with the most, and of such clients the one that came first. So a client that holds many loses its own, and the others always get one.
func Excess[T any, K comparable](all []T, client func(T) K, most, mostEach int) int {
	each, out := map[K]int{}, 0
	for _, one := range all {
		each[client(one)]++
	}
	for i, one := range all {
		if each[client(one)] > each[client(all[out])] {
			out = i
		}
	}
	if len(all) == 0 || len(all) <= most && each[client(all[out])] <= mostEach {
		return -1
	}
	return out
}
