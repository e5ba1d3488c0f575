// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"

	"liqo.io/liqo/internal/kube/special"
)

// Family is an address family in which networks are assigned. A further one is another row of families, and arithmetic on longer addresses in this
// package; who builds rows of networks takes the first of them so far, see ADR 48.
type Family struct {
	Name string
	// has reports whether an address is of the family.
	has func(netip.Addr) bool
	// special are the networks in which no host has an address.
	special func() []netip.Prefix
}

var families = []Family{{"IPv4", netip.Addr.Is4, special.IPv4}}

// FamilyOf returns the family of a network. It is an error if networks of that family are not assigned.
func FamilyOf(network netip.Prefix) (Family, error) {
	for _, family := range families {
		if family.has(network.Addr()) {
			return family, nil
		}
	}
	return Family{}, fmt.Errorf("%s is %w: only %s so far", network, ErrInvalid, families[0].Name)
}
