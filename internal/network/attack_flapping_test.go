// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/pace"
	"liqo.io/liqo/internal/network/report"
)

// clock lets the controllers live later than the test.
func (b *bench) clock() (later func(time.Duration)) {
	var shift atomic.Int64
	b.options.Now = func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
	return func(by time.Duration) { shift.Add(int64(by)) }
}

// TestAttackFlapping: a peer signs answers with two networks in turns, and both are free here. Each one that counts is written on every node, so one does at once, and
// another one after it has stood for a minute. What was agreed stays meanwhile, also over a restart.
func TestAttackFlapping(t *testing.T) {
	b := newBench(t)
	later := b.clock()
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	stop := b.run()
	milan := b.peer("milan")
	milan.outgoing("Established")
	milan.reports("10.200.0.0/16", "242.0.0.0/16", 1)
	shows := func(i int) string { return fmt.Sprintf("242.20%d.0.0/16", i%2) }
	milan.answers(shows(0), "242.250.0.0/16")
	is := func(i int) func() bool {
		return func() bool { return b.there(milan.tunnel) && milan.tunnel.Spec.LocalNATPodCIDR == shows(i) }
	}
	b.Until("the first answer counts", is(0))
	milan.answers(shows(1), "242.250.0.0/16")
	b.Until("so does the first change", is(1))

	generation := milan.tunnel.Generation
	for i := range 40 {
		milan.answers(shows(i+1), "242.250.0.0/16") // the last one is 0
	}
	b.expectNoWrites("the peer stands still", time.Second)
	b.Read(milan.tunnel)
	t.Logf("40 changed answers wrote the agreement %d times", milan.tunnel.Generation-generation)
	if milan.tunnel.Generation != generation || milan.tunnel.Labels[labels.TunnelShown] != "true" {
		t.Errorf("40 changed answers wrote the agreement %d times, want never; labels %v", milan.tunnel.Generation-generation, milan.tunnel.Labels)
	}
	milan.tunnelIs(netv1alpha1.ReasonAgreed, "the peer keeps changing its networks")
	later(pace.Stand + time.Second)
	milan.wake()
	b.Until("it counts after it has stood", is(0))
	b.Until("the condition forgets that", func() bool {
		b.Read(milan.tunnel)
		return !strings.Contains(meta.FindStatusCondition(milan.tunnel.Status.Conditions, netv1alpha1.ConditionReady).Message, "keeps changing")
	})

	// A restart is no rest: a change while it lasts has to stand.
	stop()
	milan.answers(shows(1), "242.250.0.0/16")
	b.run()
	milan.tunnelIs(netv1alpha1.ReasonAgreed, "the peer keeps changing its networks")
	b.expectNoWrites("after a restart", time.Second)
	if !is(0)() {
		t.Errorf("a restart of the controller used the changed answer %s", milan.tunnel.Spec.LocalNATPodCIDR)
	}
	later(pace.Stand + time.Second)
	milan.wake()
	b.Until("it counts after it has stood", is(1))
	b.expectNoWrites("idle", time.Second)
}

// TestAttackFlappingNetworks: a peer may have every network of a value, and announces another one each time.
func TestAttackFlappingNetworks(t *testing.T) {
	b := newBench(t)
	later := b.clock()
	b.options.Unmapped = []netip.Prefix{netip.MustParsePrefix("10.60.0.0/14")}
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	milan := b.peer("milan")
	milan.outgoing("Established")
	milan.reports("10.60.0.0/16", "242.0.0.0/16", 1)
	milan.answers("None", "None")
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	announces := func(i int) { // and another port each time, which is passed on
		milan.amend(func(to *netv1alpha1.NetworkConfigSpec) {
			to.PodCIDR, to.Lanes[0].Carriers[0].Port = netv1alpha1.CIDR(fmt.Sprintf("10.60.%d.0/24", i)), int32(6000+i)
		})
	}
	is := func(i int) func() bool {
		return func() bool {
			b.Read(milan.tunnel)
			return milan.tunnel.Spec.RemotePodCIDR == netv1alpha1.CIDR(fmt.Sprintf("10.60.%d.0/24", i))
		}
	}
	announces(1)
	b.Until("the first change counts", is(1))
	for i := range 14 {
		announces(i + 2)
	}
	b.Until("the port is passed on", func() bool { b.Read(milan.tunnel); return milan.tunnel.Spec.Lanes[0].Carriers[0].Port == 6015 })
	milan.tunnelIs(netv1alpha1.ReasonAgreed, "the peer keeps changing its networks", "10.60.1.0/24 is used as it is")
	b.expectNoWrites("the peer stands still", time.Second)
	if b.Read(milan.copy); !is(1)() || milan.copy.Status.ObservedGeneration == milan.copy.Generation {
		t.Errorf("%s is used at once, answer %+v", milan.tunnel.Spec.RemotePodCIDR, milan.copy.Status)
	}
	later(pace.Stand + time.Second)
	milan.wake()
	b.Until("the last one counts after it has stood", is(15))
	milan.decided(netv1alpha1.ReasonAgreed, "")
}

// TestFlappingClaims counts how many claims of a peer are read in an hour in which it announces another port or key twice a second, or deletes what it announces. One
// that does not change is always read.
func TestFlappingClaims(t *testing.T) {
	for name, row := range map[string]struct {
		change func(s *tunnelScope, n int64)
		steady bool
	}{
		"another spec":           {func(s *tunnelScope, n int64) { s.theirs.Generation = n }, false},
		"deleted and made again": {func(s *tunnelScope, n int64) { s.theirs.UID = types.UID(fmt.Sprint(n)) }, false},
		"the peering is left": {func(s *tunnelScope, n int64) {
			if s.ours = nil; n%2 == 0 {
				s.ours = &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(n))}}
			}
		}, false},
		"nothing":               {func(*tunnelScope, int64) {}, true},
		"ours is not published": {func(s *tunnelScope, _ int64) { s.ours = nil }, true},
	} {
		y := newSteadiness()
		s := &tunnelScope{tenancy: tenancy{namespace: "milan"}, theirs: &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{UID: "theirs"}}}
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
		if !y.reads(&tunnelScope{tenancy: tenancy{namespace: "paris"}, theirs: s.theirs}, noon) {
			t.Errorf("%s: another peer is delayed", name)
		}
	}
	// A peering that begins costs one reading, whichever of the two is first.
	y, s := newSteadiness(), &tunnelScope{tenancy: tenancy{namespace: "milan"}, theirs: &netv1alpha1.NetworkConfig{}}
	for i := range claimBurst {
		s.theirs.UID, s.ours = types.UID(fmt.Sprint(i)), nil
		first := y.reads(s, noon)
		s.ours = &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("ours ", i))}}
		if !first || !y.reads(s, noon) {
			t.Fatalf("peering %d in a row waits", i+1)
		}
	}
}

// TestAttackFlappingStatus counts how often in an hour the status of a tunnel is written, and nodes get another MTU, while the peer's gateway changes its address, drops
// large packets, or stops to answer on one lane, twice a second. What matters is never late.
func TestAttackFlappingStatus(t *testing.T) {
	for name, row := range map[string]struct {
		change func(f *tunnelFacts, odd bool)
		most   int
	}{
		"address": {func(f *tunnelFacts, odd bool) {
			both(f, func(_ *observation, p *report.Peer) {
				p.Endpoint = map[bool]string{true: "203.0.113.8:1", false: "203.0.113.9:2"}[odd]
			})
		}, statusBurst + int(time.Hour/statusPause)},
		"lane": {func(f *tunnelFacts, odd bool) { f.change(0, func(_ *observation, p *report.Peer) { p.Up = odd }) }, statusBurst + int(time.Hour/statusPause)},
		"MTU": {func(f *tunnelFacts, odd bool) {
			both(f, func(_ *observation, p *report.Peer) { p.MTU = map[bool]int{true: 1280, false: 1400}[odd] })
		}, 2},
	} {
		y, f := newSteadiness(), testFacts()
		f.tunnel.Status, _, _ = tunnelStatus(f)
		writes, mtus, odd := 0, 0, false
		for f.now = noon; f.now.Before(noon.Add(time.Hour)); f.now = f.now.Add(500 * time.Millisecond) {
			odd = !odd
			row.change(f, odd)
			status, _, _ := tunnelStatus(f)
			if equality.Semantic.DeepEqual(&status, &f.tunnel.Status) || !y.reports("milan", &f.tunnel.Status, &status, f.now) {
				continue
			}
			writes++
			if status.Connection.MTU != f.tunnel.Status.Connection.MTU {
				mtus++
			}
			f.tunnel.Status = status
		}
		t.Logf("%s: %d writes in an hour, %d of them change the MTU", name, writes, mtus)
		if writes > row.most || writes == 0 || mtus > 2 {
			t.Errorf("%s: %d writes in an hour, want at most %d; %d of them change the MTU", name, writes, row.most, mtus)
		}
		both(f, func(_ *observation, p *report.Peer) { p.Up = false })
		f.badSince = f.now.Add(-lostGrace)
		if status, _, _ := tunnelStatus(f); status.Connection.Status != netv1alpha1.ConnectionError || !y.reports("milan", &f.tunnel.Status, &status, f.now) {
			t.Errorf("%s: a loss is reported late: %+v", name, status.Connection)
		}
	}
}

// TestMTU: a smaller MTU counts at once, a larger one after it has stood.
func TestMTU(t *testing.T) {
	var memory pace.Memory[int32]
	used := int32(0)
	for i, step := range []struct {
		at             int // seconds
		measured, want int32
	}{{0, 1400, 1400}, {1, 1420, 1420}, {2, 1300, 1300}, {3, 1420, 1300}, {4, 1280, 1280}, {5, 1420, 1280}, {64, 1420, 1280}, {65, 1420, 1420}, {70, 1420, 1420}, {200, 1440, 1440}} {
		used, memory = settleMTU(memory, used, step.measured, noon.Add(time.Duration(step.at)*time.Second))
		if used != step.want {
			t.Errorf("step %d: %d is used, want %d", i, used, step.want)
		}
	}
}

// TestAttackFlappingRefusal: a peer writes another reason into our own NetworkConfig each time, and removes what we report there.
func TestAttackFlappingRefusal(t *testing.T) {
	b := newBench(t)
	noon := time.Now()
	b.options.Now = func() time.Time { return noon }
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	milan := b.peer("milan")
	milan.outgoing("Established")
	milan.published(netv1alpha1.ReasonAnswerPending, "")
	before := b.writes.count()
	const many = 3 * statusBurst
	for i := range many {
		b.EditStatus(milan.ours, func() {
			milan.ours.Status.Conditions = []metav1.Condition{{
				Type: netv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Because", Message: fmt.Sprintf("reason %d", i), LastTransitionTime: metav1.Now(),
			}}
		})
		if i < statusBurst/2 {
			milan.published(netv1alpha1.ReasonAnswerInvalid, fmt.Sprintf("reason %d", i))
		}
	}
	b.expectNoWrites("the peer stands still", time.Second)
	got := b.writes.count() - before
	t.Logf("%d reasons, %d writes", many, got)
	if got > statusBurst {
		t.Errorf("%d reasons of a peer are written %d times, want at most %d", many, got, statusBurst)
	}
}

// TestShownOnce: the label of a peer that shows our pods where its own gateway is does not depend on whether the agreement was made now or found.
func TestShownOnce(t *testing.T) {
	b := newBench(t)
	b.options.RemapPools = setApart
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	milan := b.peer("milan")
	milan.outgoing("Established")
	milan.copy = milan.claims("10.60.0.0/16", "10.61.0.0/16", 1)
	milan.copy.Spec.Lanes[0].Carriers[0].Addresses[0] = "10.44.0.7"
	milan.sign(&milan.copy.Spec)
	b.Make(milan.copy)
	milan.answers("10.44.0.0/16", "10.45.0.0/16")
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	b.expectNoWrites("idle", 300*time.Millisecond)
	b.Read(milan.tunnel)
	version := milan.tunnel.ResourceVersion
	for range 3 {
		milan.wake()
		b.expectNoWrites("woken", 300*time.Millisecond)
		if b.Read(milan.tunnel); milan.tunnel.Labels[labels.TunnelShown] != "" || milan.tunnel.ResourceVersion != version {
			t.Fatalf("nodes lead the address of the gateway that we dial to our pods: %v", milan.tunnel.Labels)
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
		pools := ipam.Pools{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/14")}, Used: []ipam.Use{{Name: "ours", Network: within(20)}}}
		if random.IntN(2) == 0 {
			pools.Reached = []ipam.Use{{Name: "a link", Network: within(20)}}
		}
		pools.Restore(ipam.Assignment{Owner: "paris", Kind: ipam.PodNetwork, Want: within(18), Have: within(18), Agreed: true, Written: true})
		s := &tunnelScope{tenancy: tenancy{namespace: "milan"}, claim: claim{pods: within(18), external: within(18), lanes: []netv1alpha1.Lane{{
			Carriers: []netv1alpha1.Carrier{{Type: netv1alpha1.CarrierUDP, Addresses: []string{within(32).Addr().String()}, Port: 1}},
		}}}}
		// Made now, as decide does, from the same records.
		made := pools
		made.Used = append(slices.Clone(pools.Used), carrierLiterals("gateway of the peer", s.claim.lanes)...)
		var err, err2 error
		s.agreed.pods, _, err = made.Acquire("milan", ipam.PodNetwork, s.claim.pods, ipam.NoWord)
		s.agreed.external, _, err2 = made.Acquire("milan", ipam.ExternalNetwork, s.claim.external, ipam.NoWord)
		if err != nil || err2 != nil {
			continue
		}
		// Found: they are restored from the tunnel.
		found := pools
		for kind, one := range map[ipam.Kind][2]netip.Prefix{ipam.PodNetwork: {s.claim.pods, s.agreed.pods}, ipam.ExternalNetwork: {s.claim.external, s.agreed.external}} {
			if !found.Restore(ipam.Assignment{Owner: "milan", Kind: kind, Want: one[0], Have: one[1], Agreed: true}) && one[0] != one[1] {
				t.Fatalf("%s is not restored", one)
			}
		}
		shown := within(18)
		s.pools = &made
		first := leadsToOurPods(s, shown)
		s.pools = &found
		if second := leadsToOurPods(s, shown); first != second {
			t.Fatalf("shown as %s: %v when it is agreed, %v when it is found; agreed %+v, lanes %+v", shown, first, second, s.agreed, s.claim.lanes)
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
