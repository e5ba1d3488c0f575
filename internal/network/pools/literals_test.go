// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"testing"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// TestLiteralsAreBounded: a peer with very many gateway addresses blocks only a few of them for others.
func TestLiteralsAreBounded(t *testing.T) {
	var lanes []netv1alpha1.Lane
	for i := range 8 {
		lane := netv1alpha1.Lane{Number: int32(i)}
		for j := range 8 {
			carrier := netv1alpha1.Carrier{Addresses: []string{"gw.example.com", "fd00::1", "203.0.113.7"}}
			for k := range 16 {
				carrier.Addresses = append(carrier.Addresses, fmt.Sprintf("10.%d.%d.1", 8*i+j, k))
			}
			lane.Carriers = append(lane.Carriers, carrier)
		}
		lanes = append(lanes, lane)
	}
	if all := CarrierLiterals("x", lanes); len(all) != maxLiterals || all[0].Network.String() != "203.0.113.7/32" {
		t.Errorf("%d addresses, the first is %s", len(all), all[0].Network)
	}
}
