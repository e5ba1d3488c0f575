// SPDX-License-Identifier: Apache-2.0

package network

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/reach"
	"liqo.io/liqo/internal/network/tunnelendpoint"
)

// agents makes the DaemonSet of the agents.
func (b *bench) agents() {
	b.T.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: tunnelendpoint.AgentsName}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": tunnelendpoint.AgentsName}}
	set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "route", Image: "none"}}
	b.Make(set)
}

// announces is a peer with two networks, of which an administrator wrote the first one down.
func (b *bench) announces(name, pods, external string, key byte) *peer {
	b.T.Helper()
	p := b.peer(name)
	p.writeDown(pods)
	p.outgoing(discoveryv1alpha1.StatusEstablished)
	p.reports(pods, external, key)
	return p
}

// wake has the peer reconciled.
func (p *peer) wake() {
	p.T.Helper()
	p.Edit(p.fc, func() { metav1.SetMetaDataAnnotation(&p.fc.ObjectMeta, "test", time.Now().String()) })
}

// TestAttackNC1Unreported: a peer announces the network of hosts that one node reaches, an administrator wrote it down in good faith, and the agent of that node has not
// reported yet. Nothing leads to the peer until it has; a node that never reports delays it for a bounded time, and an event names it. What is in use stays.
func TestAttackNC1Unreported(t *testing.T) {
	b := newBench(t)
	var later atomic.Int64
	b.options.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	b.node("n1", "192.0.2.1", true)
	virtual := b.node("liqo-other", "192.0.2.9", true)
	b.Edit(virtual, func() { virtual.Labels = map[string]string{labels.Type: labels.TypeVirtualNode} })
	b.agents()
	b.service(0, corev1.ServiceTypeNodePort)
	stop := b.run()

	milan := b.announces("milan", "10.50.0.0/16", "242.9.0.0/16", 1)
	milan.decided(netv1alpha1.ReasonNodesUnreported, "10.50.0.0/16 may be a part of that")
	milan.event(netv1alpha1.ReasonNodesUnreported, "10.50.0.0/16", "until node n1 have reported")
	milan.answers("None", "None")
	b.expectNoWrites("waiting for a report", time.Second)
	if condition := milan.copy.Status.Conditions[0].Message; strings.Contains(condition, "n1") {
		t.Errorf("the peer reads the name of a node: %s", condition)
	}
	// Neither a forged answer nor a restart ends the wait.
	b.EditStatus(milan.copy, func() {
		milan.copy.Status.Processed, milan.copy.Status.PodCIDRNAT, milan.copy.Status.ExternalCIDRNAT = true, "None", "None"
		milan.copy.Status.ObservedGeneration = milan.copy.Generation
	})
	b.Until("our answer is back", func() bool { b.Read(milan.copy); return !milan.copy.Status.Processed })
	stop()
	b.EditStatus(milan.copy, func() {
		milan.copy.Status.Processed, milan.copy.Status.PodCIDRNAT, milan.copy.Status.ExternalCIDRNAT = true, "None", "None"
	})
	b.run()
	b.Until("our answer is back", func() bool { b.Read(milan.copy); return !milan.copy.Status.Processed })
	if b.there(milan.tunnel) {
		t.Errorf("a tunnel: %+v", milan.tunnel.Spec)
	}
	b.reportOf("n1", netv1alpha1.NodeNetwork{CIDR: "10.50.9.0/24", Kind: netv1alpha1.NodeNetworkLink, Link: "eth1"})
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	if now := milan.reached(); now[0].String() == "10.50.0.0/16" {
		t.Errorf("milan is reached as %s", now)
	}
	milan.free(false, "10.50.9.0/24 (node n1 by its link eth1)")

	// A peer without a word does not wait, and one that gets a word while it is in use stays where it is meanwhile.
	second := b.node("n2", "192.0.2.2", true)
	b.EditStatus(second, func() { second.Status.Conditions[0].LastTransitionTime = metav1.Now() })
	turin := b.announces("turin", "10.60.0.0/16", "242.9.0.0/16", 2)
	turin.decided(netv1alpha1.ReasonNodesUnreported, "10.60.0.0/16")
	turin.writeDown()
	turin.answers("None", "None")
	turin.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	before := turin.reached()
	turin.writeDown("10.60.0.0/16")
	turin.tunnelIs(netv1alpha1.ReasonAgreed, "10.60.0.0/16 is to be used as it is, by spec.network.podCIDRs of ForeignCluster turin: that waits until node n2 have reported")
	if now := turin.reached(); now[0] != before[0] || before[0].String() == "10.60.0.0/16" {
		t.Errorf("turin is reached as %s, before as %s", now, before)
	}
	// By name, a network leads to the peer whatever nodes reach.
	b.Edit(turin.fc, func() { turin.fc.Spec.Network.ForcedCIDRs = []string{"10.60.0.0/16"} })
	b.Until("the network is forced", func() bool { return turin.reached()[0].String() == "10.60.0.0/16" })

	// A node that never reports.
	paris := b.announces("paris", "10.70.0.0/16", "242.9.0.0/16", 3)
	paris.decided(netv1alpha1.ReasonNodesUnreported, "10.70.0.0/16")
	paris.answers("None", "None")
	later.Store(int64(reach.ReportTimeout + time.Second))
	paris.wake()
	paris.seen("None", paris.external())
	paris.event(netv1alpha1.ReasonNodesUnreported, "10.70.0.0/16 leads to cluster paris now", "node n2")
	paris.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	b.expectNoWrites("a cluster with a silent node", time.Second)
}

// external is under what the other addresses of a peer are reached.
func (p *peer) external() string {
	p.T.Helper()
	p.Until("it is decided", func() bool { p.Read(p.copy); return p.copy.Status.Processed })
	return p.copy.Status.ExternalCIDRNAT
}
