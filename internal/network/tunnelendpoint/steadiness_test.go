// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/claim"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/tenants"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// TestFlappingClaims counts how many claims of a peer are read in an hour in which it announces another port or key twice a second, or deletes what
// it announces. One that does not change is always read.
func TestFlappingClaims(t *testing.T) {
	for name, row := range map[string]struct {
		change func(s *scope, n int64)
		steady bool
	}{
		"another spec":           {func(s *scope, n int64) { s.theirs.Generation = n }, false},
		"deleted and made again": {func(s *scope, n int64) { s.theirs.UID = types.UID(fmt.Sprint(n)) }, false},
		"the peering is left": {func(s *scope, n int64) {
			if s.ours = nil; n%2 == 0 {
				s.ours = &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(n))}}
			}
		}, false},
		"nothing":               {func(*scope, int64) {}, true},
		"ours is not published": {func(s *scope, _ int64) { s.ours = nil }, true},
	} {
		y := newSteadiness()
		s := &scope{Tenant: tenants.Tenant{Namespace: "milan"}, theirs: &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{UID: "theirs"}}}
		s.ours = &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{UID: "ours"}}
		var before reading
		read, changed, unread := 0, int64(0), 0
		for now := noon; now.Before(noon.Add(time.Hour)); now = now.Add(500 * time.Millisecond) {
			changed++
			if row.change(s, changed); s.ours == nil {
				y.forget("milan") // as prune does
			}
			switch {
			case !y.reads(s, now):
				unread++
			case y.last["milan"] != before:
				before = y.last["milan"]
				read++
			}
		}
		t.Logf("%s: %d of %d claims are read in an hour", name, read, changed)
		if most := claimBurst + int(time.Hour/claimPause); read > most || read == 0 || row.steady && (read > 1 || unread > 0) {
			t.Errorf("%s: %d claims are read in an hour, want at most %d; %d times it was not read", name, read, most, unread)
		}
		if !y.reads(&scope{Tenant: tenants.Tenant{Namespace: "paris"}, theirs: s.theirs}, noon) {
			t.Errorf("%s: another peer is delayed", name)
		}
	}
	// A peering that begins costs one reading, whichever of the two is first.
	y, s := newSteadiness(), &scope{Tenant: tenants.Tenant{Namespace: "milan"}, theirs: &netv1alpha1.NetworkConfig{}}
	for i := range claimBurst {
		s.theirs.UID, s.ours = types.UID(fmt.Sprint(i)), nil
		first := y.reads(s, noon)
		s.ours = &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("ours ", i))}}
		if !first || !y.reads(s, noon) {
			t.Fatalf("peering %d in a row waits", i+1)
		}
	}
}

// TestShownAgrees: whether a network leads to our pods is the same for an agreement that is made now and for one that was found, whatever is in use here.
func TestShownAgrees(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	within := func(bits int) netip.Prefix { // small pools, so that much overlaps
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(random.IntN(4)), byte(random.IntN(256)), byte(random.IntN(256))}), bits).Masked()
	}
	leads, differ := 0, 0
	for range 20000 {
		free := ipam.Pools{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/14")}, Used: []ipam.Use{{Name: "ours", Network: within(20)}}}
		if random.IntN(2) == 0 {
			free.Reached = []ipam.Use{{Name: "a link", Network: within(20)}}
		}
		free.Restore(ipam.Assignment{Owner: "paris", Kind: ipam.PodNetwork, Want: within(18), Have: within(18), Agreed: true, Written: true})
		s := &scope{Tenant: tenants.Tenant{Namespace: "milan"}, claim: claim.Claim{Pods: within(18), External: within(18), Lanes: []netv1alpha1.Lane{{
			Carriers: []netv1alpha1.Carrier{{Type: netv1alpha1.CarrierUDP, Addresses: []string{within(32).Addr().String()}, Port: 1}},
		}}}}
		// Made now, as decide does, from the same records.
		made := free
		made.Used = append(slices.Clone(free.Used), pools.CarrierLiterals("gateway of the peer", s.claim.Lanes)...)
		var err, err2 error
		s.agreed.pods, _, err = made.Acquire("milan", ipam.PodNetwork, s.claim.Pods, ipam.NoWord)
		s.agreed.external, _, err2 = made.Acquire("milan", ipam.ExternalNetwork, s.claim.External, ipam.NoWord)
		if err != nil || err2 != nil {
			continue
		}
		// Found: they are restored from the tunnel.
		found := free
		for kind, one := range map[ipam.Kind][2]netip.Prefix{
			ipam.PodNetwork: {s.claim.Pods, s.agreed.pods}, ipam.ExternalNetwork: {s.claim.External, s.agreed.external},
		} {
			if !found.Restore(ipam.Assignment{Owner: "milan", Kind: kind, Want: one[0], Have: one[1], Agreed: true}) && one[0] != one[1] {
				t.Fatalf("%s is not restored", one)
			}
		}
		shown := within(18)
		s.pools = &made
		first := leadsToOurPods(s, shown)
		s.pools = &found
		if second := leadsToOurPods(s, shown); first != second {
			t.Fatalf("shown as %s: %v when it is agreed, %v when it is found; agreed %+v, lanes %+v", shown, first, second, s.agreed, s.claim.Lanes)
		}
		if first {
			leads++
		}
		if made.IsVacant(shown) != found.IsVacant(shown) {
			differ++
		}
	}
	if leads == 0 || differ == 0 {
		t.Errorf("%d networks lead to our pods, and in %d cases the pools differ; want both, or this shows nothing", leads, differ)
	}
}
