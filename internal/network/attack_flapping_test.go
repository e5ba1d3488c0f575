// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/pace"
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
	b.options.Pools.Unmapped = []netip.Prefix{netip.MustParsePrefix("10.60.0.0/14")}
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
	const many = 3 * pace.StatusBurst
	for i := range many {
		b.EditStatus(milan.ours, func() {
			milan.ours.Status.Conditions = []metav1.Condition{{
				Type: netv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Because", Message: fmt.Sprintf("reason %d", i), LastTransitionTime: metav1.Now(),
			}}
		})
		if i < pace.StatusBurst/2 {
			milan.published(netv1alpha1.ReasonAnswerInvalid, fmt.Sprintf("reason %d", i))
		}
	}
	b.expectNoWrites("the peer stands still", time.Second)
	got := b.writes.count() - before
	t.Logf("%d reasons, %d writes", many, got)
	if got > pace.StatusBurst {
		t.Errorf("%d reasons of a peer are written %d times, want at most %d", many, got, pace.StatusBurst)
	}
}

// TestShownOnce: the label of a peer that shows our pods where its own gateway is does not depend on whether the agreement was made now or found.
func TestShownOnce(t *testing.T) {
	b := newBench(t)
	b.options.Pools.RemapPools = setApart
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
