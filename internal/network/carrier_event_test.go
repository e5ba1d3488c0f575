// SPDX-License-Identifier: Apache-2.0

package network

import "testing"

// TestCarrierChange: an event for each change, and for a first carrier that is not UDP.
func TestCarrierChange(t *testing.T) {
	for _, test := range [][5]string{
		{"", "UDP", "", "", ""},
		{"UDP", "UDP", "", "", ""},
		{"TLS", "", "", "", ""},
		{"", "TLS", "UDP: no answer", "Warning", "the tunnel goes over TLS (UDP: no answer)"},
		{"UDP", "WebSocket", "UDP: no answer", "Warning", "the tunnel goes over WebSocket instead of UDP (UDP: no answer)"},
		{"TLS", "UDP", "", "Normal", "the tunnel goes over UDP again, after TLS"},
	} {
		if kind, message := carrierChange(test[0], test[1], test[2]); kind != test[3] || message != test[4] {
			t.Errorf("%q to %q: %s %q", test[0], test[1], kind, message)
		}
	}
}
