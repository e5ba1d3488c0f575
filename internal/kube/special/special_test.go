// SPDX-License-Identifier: Apache-2.0

package special

import (
	"net/netip"
	"testing"
)

func TestIs(t *testing.T) {
	for text, want := range map[string]bool{
		"0.0.0.0": true, "0.1.2.3": true, "127.0.0.1": true, "169.254.169.254": true, "224.0.0.1": true, "239.255.255.255": true, "255.255.255.255": true,
		"::": true, "::1": true, "::ffff:10.1.0.5": true, "fe80::1": true, "ff02::1": true,
		"1.0.0.0": false, "10.1.0.5": false, "126.0.0.1": false, "169.253.0.1": false, "223.255.255.255": false, "242.0.0.1": false,
		"255.255.255.254": false, "::2": false, "fd00::1": false, "2001:db8::1": false,
	} {
		if got := Is(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
