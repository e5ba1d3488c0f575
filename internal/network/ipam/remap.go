// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
)

// Swap translates an address from network from to network to: it replaces the network bits and keeps the host bits. It returns false if the
// networks differ in size, or if address is not in from.
func Swap(address netip.Addr, from, to netip.Prefix) (netip.Addr, bool) {
	if from.Bits() != to.Bits() || from.Addr().BitLen() != to.Addr().BitLen() || !from.Contains(address) {
		return netip.Addr{}, false
	}
	host, network := address.AsSlice(), to.Masked().Addr().AsSlice()
	for i := range host {
		bits := min(8, max(0, from.Bits()-8*i))
		mask := byte(0xff) << (8 - bits)
		host[i] = host[i]&^mask | network[i]&mask
	}
	swapped, ok := netip.AddrFromSlice(host)
	return swapped, ok
}
