// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"time"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// previousFor is how long our gateways get a replaced key: longer than a peer takes until it uses the new one.
const previousFor = 90 * time.Second

// previousKeys returns the entries of a tunnel's backend_config for the recently replaced keys of the peer's lanes.
func previousKeys(before *netv1alpha1.TunnelEndpoint, lanes []netv1alpha1.Lane, now time.Time) map[string]string {
	all := map[string]string{}
	if before == nil {
		return all
	}
	for _, old := range before.Spec.Lanes {
		for _, lane := range lanes {
			if lane.Number != old.Number {
				continue
			}
			previous, until, known := before.Spec.PreviousKey(old.Number)
			if lane.PublicKey != old.PublicKey {
				previous, until, known = old.PublicKey, now, true
			}
			if known && previous != lane.PublicKey && now.Sub(until) < previousFor {
				all[netv1alpha1.PreviousKeyEntry(lane.Number)] = netv1alpha1.FormatPreviousKey(previous, until)
			}
		}
	}
	return all
}
