// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"net/netip"
	"strings"
	"testing"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// FuzzReadAnswer: the prefixes in an accepted answer of a peer are two disjoint IPv4 networks, as large as ours, in which hosts can be. An error stays short.
func FuzzReadAnswer(f *testing.F) {
	const pods, external = "10.1.0.0/16", "10.2.0.0/16"
	for _, answer := range [][2]string{
		{"None", "None"},
		{"10.9.0.0/16", "None"},
		{"10.9.0.0/16", "10.9.0.0/16"}, // the same network twice
		{"None", pods},                 // external addresses among the pods
		{external, pods},               // swapped, which is allowed
		{"10.9.0.0/17", "None"},        // too small
		{"10.0.0.0/8", "None"},         // too large
		{"10.9.0.1/16", "None"},        // an address of a host
		{"127.0.0.0/16", "None"},
		{"224.1.0.0/16", "None"},
		{"169.254.0.0/16", "None"},
		{"0.0.0.0/16", "None"},
		{"fd00::/16", "None"},
		{"::ffff:10.9.0.0/16", "None"},
		{"10.9.0.0/016", "None"},
		{"", ""},
		{strings.Repeat("9", 10_000), "None"},
	} {
		f.Add(pods, external, answer[0], answer[1])
	}
	f.Add("", external, "None", "None")
	f.Add("10.1.0.0/16", "10.1.128.0/17", "None", "None")
	f.Fuzz(func(t *testing.T, ownPods, ownExternal, podsNAT, externalNAT string) {
		ours := &netv1alpha1.NetworkConfig{
			Spec:   netv1alpha1.NetworkConfigSpec{PodCIDR: netv1alpha1.CIDR(ownPods), ExternalCIDR: netv1alpha1.CIDR(ownExternal)},
			Status: netv1alpha1.NetworkConfigStatus{PodCIDRNAT: podsNAT, ExternalCIDRNAT: externalNAT},
		}
		gotPods, gotExternal, err := ReadAnswer(ours)
		if err != nil {
			if len(err.Error()) > 400 {
				t.Errorf("%d bytes of error", len(err.Error()))
			}
			return
		}
		if gotPods.Overlaps(gotExternal) {
			t.Errorf("%s and %s overlap", gotPods, gotExternal)
		}
		for _, network := range []struct {
			own, claimed string
			got          netip.Prefix
		}{{ownPods, podsNAT, gotPods}, {ownExternal, externalNAT, gotExternal}} {
			own := netip.MustParsePrefix(network.own)
			if network.claimed == netv1alpha1.NotRemapped {
				if network.got != own {
					t.Errorf("%s is not remapped, but seen as %s", own, network.got)
				}
				continue
			}
			address := network.got.Addr()
			if network.got.String() != network.claimed && netip.MustParsePrefix(network.claimed) != network.got || network.got.Bits() != own.Bits() ||
				!address.Is4() || network.got != network.got.Masked() || address.IsLoopback() ||
				address.IsMulticast() || address.IsUnspecified() || address.IsLinkLocalUnicast() {
				t.Errorf("%s is accepted as %s for %s", network.claimed, network.got, own)
			}
		}
	})
}
