// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"net/netip"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// Seen returns the prefix for a network: its own if it is not remapped.
func Seen(own netv1alpha1.CIDR, nat string) string {
	if nat == "" || nat == netv1alpha1.NotRemapped {
		return string(own)
	}
	return nat
}

// Remap returns the documented form of a mapping: the prefix, or None if the network is not remapped.
func Remap(from, to netip.Prefix) string {
	if from == to {
		return netv1alpha1.NotRemapped
	}
	return to.String()
}

// NATOf is remap for a network as text.
func NATOf(own netv1alpha1.CIDR, as netip.Prefix) string {
	if string(own) == as.String() {
		return netv1alpha1.NotRemapped
	}
	return as.String()
}
