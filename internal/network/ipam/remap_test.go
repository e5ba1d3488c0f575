// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"testing"
)

func TestSwap(t *testing.T) {
	for _, row := range []struct{ address, from, to, want string }{
		{"10.200.3.4", "10.200.0.0/16", "10.1.0.0/16", "10.1.3.4"},
		{"10.200.3.4", "10.200.0.0/20", "192.168.16.0/20", "192.168.19.4"},
		{"10.200.3.4", "10.200.3.4/32", "1.2.3.4/32", "1.2.3.4"},
		{"10.200.3.4", "0.0.0.0/0", "0.0.0.0/0", "10.200.3.4"},
		{"fd00::1:2", "fd00::/96", "fd01::/96", "fd01::1:2"},
		{"10.200.3.4", "10.200.0.0/16", "10.1.0.0/17", ""},
		{"10.201.3.4", "10.200.0.0/16", "10.1.0.0/16", ""},
		{"10.200.3.4", "10.200.0.0/16", "fd00::/16", ""},
	} {
		got, ok := Swap(netip.MustParseAddr(row.address), prefix(row.from), prefix(row.to))
		if ok != (row.want != "") || ok && got.String() != row.want {
			t.Errorf("%s from %s to %s: %s %t, want %q", row.address, row.from, row.to, got, ok, row.want)
		}
	}
	if _, ok := Swap(netip.Addr{}, prefix("10.0.0.0/8"), prefix("10.0.0.0/8")); ok {
		t.Error("no address was swapped")
	}
}

// FuzzSwap: swapping back gives the address, and only host bits are kept.
func FuzzSwap(f *testing.F) {
	f.Add(uint32(0x0ac80304), uint32(0x0ac80000), uint32(0x0a010000), uint8(16))
	f.Add(uint32(0xffffffff), uint32(0), uint32(0x80000000), uint8(1))
	f.Fuzz(func(t *testing.T, address, from, to uint32, bits uint8) {
		zero := netip.AddrFrom4([4]byte{})
		a := netip.PrefixFrom(plus(zero, from), int(bits%33)).Masked()
		b := netip.PrefixFrom(plus(zero, to), int(bits%33)).Masked()
		there, ok := Swap(plus(zero, address), a, b)
		if ok != a.Contains(plus(zero, address)) {
			t.Fatalf("%t for %s in %s", ok, plus(zero, address), a)
		}
		if !ok {
			return
		}
		if back, ok := Swap(there, b, a); !ok || back != plus(zero, address) || !b.Contains(there) {
			t.Fatalf("%s to %s is %s, and back %s", plus(zero, address), b, there, back)
		}
	})
}
