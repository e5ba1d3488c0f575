// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"net/netip"
	"testing"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestSeen: what is written for a network is read again, whether or not it is remapped.
func TestSeen(t *testing.T) {
	own := netip.MustParsePrefix("10.1.0.0/16")
	for as, want := range map[string]string{"10.1.0.0/16": "None", "10.9.0.0/16": "10.9.0.0/16"} {
		prefix := netip.MustParsePrefix(as)
		if got := Remap(own, prefix); got != want || NATOf(netv1alpha1.CIDR(own.String()), prefix) != want {
			t.Errorf("%s as %s is written as %s and %s, want %s", own, as, got, NATOf(netv1alpha1.CIDR(own.String()), prefix), want)
		}
		if got := Seen(netv1alpha1.CIDR(own.String()), want); got != as {
			t.Errorf("%s is read as %s, want %s", want, got, as)
		}
	}
	if got := Seen("10.1.0.0/16", ""); got != "10.1.0.0/16" {
		t.Errorf("nothing is read as %s", got)
	}
}
