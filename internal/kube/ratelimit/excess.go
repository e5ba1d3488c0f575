// SPDX-License-Identifier: Apache-2.0

package ratelimit

import "net/netip"

// Excess returns which of all, oldest first, has to end, -1 for none: if there are more than most, or more than mostEach of one client, the oldest
// one of the client with the most, and of such clients the one that came first. So a client that holds many loses its own, and the others always get
// one.
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

// Heaviest returns the oldest one, of all, oldest first, that has a weight and is of the client with the most of it; -1 if there is no weight.
func Heaviest[T any, K comparable](all []T, client func(T) K, weight func(T) int) int {
	sum, out := map[K]int{}, -1
	for _, one := range all {
		sum[client(one)] += weight(one)
	}
	for i, one := range all {
		if weight(one) > 0 && (out < 0 || sum[client(one)] > sum[client(all[out])]) {
			out = i
		}
	}
	return out
}

// NetworkOf returns the network from which one client can choose addresses: with IPv6, a /64.
func NetworkOf(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	network, _ := from.Prefix(bits) // the zero address has the zero prefix
	return network
}
