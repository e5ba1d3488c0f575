// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/keyring"
	"liqo.io/liqo/internal/network/report"
	"liqo.io/liqo/internal/network/tenants"
)

// TestAgreement follows a peering from the request to its end, with three clusters that have the same pod network.
func TestAgreement(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.node("n2", "192.0.2.2", true)
	b.node("n3", "192.0.2.3", false)
	b.service(0, corev1.ServiceTypeNodePort)
	stop := b.run()
	milan := b.peer("milan")
	b.expectNoWrites("no peering is requested", 200*time.Millisecond)
	if b.there(milan.ours) {
		t.Fatalf("published without a peering: %+v", milan.ours)
	}

	// The request is enough.
	b.Edit(milan.fc, func() { milan.fc.Spec.OutgoingPeeringEnabled = discoveryv1alpha1.PeeringYes })
	milan.published(netv1alpha1.ReasonAnswerPending, "")
	spec := milan.ours.Spec
	if spec.PodCIDR != "10.200.0.0/16" || spec.ExternalCIDR != "242.0.0.0/16" || spec.Cluster.ClusterID != "milan-id" || spec.BackendType != "wireguard" {
		t.Errorf("published %+v", spec)
	}
	if len(spec.Lanes) != 1 || len(spec.Lanes[0].Carriers) != 1 || !slices.Equal(spec.Lanes[0].Carriers[0].Addresses, []string{"192.0.2.1", "192.0.2.2"}) ||
		spec.EndpointIP != "192.0.2.1" || spec.BackendConfig["publicKey"] != spec.Lanes[0].PublicKey || spec.BackendConfig["port"] == "" {
		t.Errorf("lanes %+v, endpoint %s, %v", spec.Lanes, spec.EndpointIP, spec.BackendConfig)
	}
	for key, want := range map[string]string{
		labels.Replication: "true", labels.RemoteID: "milan-id", labels.ClusterID: "milan-id", labels.Ownership: labels.OwnershipConfig, labels.AppPartOf: "liqo",
	} {
		if got := milan.ours.Labels[key]; got != want {
			t.Errorf("label %s=%s, want %s", key, got, want)
		}
	}

	milan.reports("10.200.0.0/16", "242.0.0.0/16", 1)
	milan.seen("242.177.0.0/16", "242.178.0.0/16")
	if b.there(milan.tunnel) {
		t.Error("a tunnel before the peer has answered")
	}
	milan.answers("10.50.0.0/16", "None")
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "no gateway pod runs")
	milan.published(netv1alpha1.ReasonPublished, "")
	tunnel := milan.tunnel.Spec
	if tunnel.LocalPodCIDR != "10.200.0.0/16" || tunnel.LocalNATPodCIDR != "10.50.0.0/16" || tunnel.LocalExternalCIDR != "242.0.0.0/16" || tunnel.LocalNATExternalCIDR != "None" ||
		tunnel.RemotePodCIDR != "10.200.0.0/16" || tunnel.RemoteNATPodCIDR != "242.177.0.0/16" || tunnel.RemoteExternalCIDR != "242.0.0.0/16" || tunnel.RemoteNATExternalCIDR != "242.178.0.0/16" {
		t.Errorf("tunnel %+v", tunnel)
	}
	if tunnel.EndpointIP != "203.0.113.7" || tunnel.BackendConfig["port"] != "5871" || len(tunnel.Lanes) != 2 || tunnel.Lanes[0].PublicKey != testKey(1) ||
		milan.tunnel.Labels[labels.TunnelCluster] != "milan-id" || tunnel.ClusterIdentity.ClusterName != "milan" {
		t.Errorf("tunnel %+v", milan.tunnel)
	}

	paris := b.peer("paris")
	paris.writeDown("10.33.0.0/16")
	paris.outgoing(discoveryv1alpha1.StatusPending)
	paris.reports("10.200.0.0/16", "10.33.0.0/16", 2)
	paris.seen("242.145.0.0/16", "None")
	paris.answers("None", "None")
	paris.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")

	// A restart changes nothing, and idle writes nothing.
	b.expectNoWrites("idle", time.Second)
	stop()
	writes := b.writes.count()
	stop = b.run()
	milan.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].Carriers[0].Port = 5999 })
	b.Until("the port is passed on", func() bool { b.Read(milan.tunnel); return milan.tunnel.Spec.Lanes[0].Carriers[0].Port == 5999 })
	milan.seen("242.177.0.0/16", "242.178.0.0/16")
	paris.seen("242.145.0.0/16", "None")
	b.Until("the generation is noted", func() bool {
		b.Read(milan.tunnel)
		return milan.tunnel.Status.ObservedGeneration == milan.tunnel.Generation
	})
	b.expectNoWrites("idle again", time.Second)
	if got := b.writes.count() - writes; got > 3 {
		t.Errorf("%d writes by a restart and a change of a port; want the answer, the tunnel and its status", got)
	}

	// A peer that changes our answer has no effect.
	b.EditStatus(paris.copy, func() { paris.copy.Status.PodCIDRNAT = "242.1.0.0/16" })
	paris.seen("242.145.0.0/16", "None")

	// The end.
	b.Edit(milan.fc, func() { milan.fc.Spec.OutgoingPeeringEnabled = discoveryv1alpha1.PeeringNo })
	b.Until("ours is gone", func() bool { return !b.there(milan.ours) })
	b.Until("the tunnel is gone", func() bool { return !b.there(milan.tunnel) })
	paris.outgoing(discoveryv1alpha1.StatusDisconnecting)
	b.expectNoWrites("while it disconnects", 300*time.Millisecond)
	if !b.there(paris.ours) || !b.there(paris.tunnel) {
		t.Error("the network went before the peering")
	}
	b.Must(b.Delete(t.Context(), paris.copy))
	b.Until("the tunnel is gone", func() bool { return !b.there(paris.tunnel) })
	if !b.there(paris.ours) {
		t.Error("ours went with the peer's")
	}
	b.Must(b.Delete(t.Context(), paris.fc))
	b.Until("ours is gone with the ForeignCluster", func() bool { return !b.there(paris.ours) })
	_ = stop
}

// TestHostile: a bad claim is refused with a condition that both administrators can read, and other peers are not affected.
func TestHostile(t *testing.T) {
	b := newBench(t)
	b.options.Pools.RemapPools = setApart
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	good, bad := b.peer("good"), b.peer("bad")
	for i, p := range []*peer{good, bad} {
		p.outgoing(discoveryv1alpha1.StatusEstablished)
		p.reports("10.200.0.0/16", "10.40.0.0/16", byte(i+1))
		p.answers("None", "None")
		p.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	}
	before := good.tunnel.Spec
	agreed := bad.tunnel.DeepCopy()
	spec := bad.copy.Spec.DeepCopy()
	for name, row := range map[string]struct {
		change func(*netv1alpha1.NetworkConfigSpec)
		reason string
		part   string
	}{
		"everything":           {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "0.0.0.0/0" }, netv1alpha1.ReasonNetworkInvalid, "0.0.0.0/0"},
		"too much":             {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "8.0.0.0/6" }, netv1alpha1.ReasonNetworkTooLarge, "8.0.0.0/6, 10.40.0.0/16"},
		"no network":           {func(s *netv1alpha1.NetworkConfigSpec) { s.ExternalCIDR = "ten" }, netv1alpha1.ReasonNetworkInvalid, "externalCIDR"},
		"loopback":             {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "127.0.0.0/8" }, netv1alpha1.ReasonNetworkInvalid, "127.0.0.0/8"},
		"another's key":        {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].PublicKey = testKey(1) }, netv1alpha1.ReasonKeyInUse, "cluster good"},
		"our key":              {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].PublicKey = good.ours.Spec.Lanes[0].PublicKey }, netv1alpha1.ReasonKeyInUse, "this cluster"},
		"our API server":       {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].Carriers[0].Addresses[0] = "10.96.0.1" }, netv1alpha1.ReasonLaneInvalid, "10.96.0.0/16"},
		"our node":             {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].Carriers[0].Addresses[0] = "192.0.2.1" }, netv1alpha1.ReasonLaneInvalid, "192.0.2.1/32"},
		"our external network": {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].Carriers[0].Addresses[0] = "10.0.3.4" }, netv1alpha1.ReasonLaneInvalid, "10.0.0.0/16"},
		"the other's network":  {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].Carriers[0].Addresses[0] = "10.40.3.4" }, netv1alpha1.ReasonLaneInvalid, "10.40.0.0/16"},
		"for another one":      {func(s *netv1alpha1.NetworkConfigSpec) { s.Cluster.ClusterID = "good-id" }, netv1alpha1.ReasonWrongDestination, "good-id"},
		"exhausting":           {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "10.0.0.0/8" }, netv1alpha1.ReasonNetworkTooLarge, "10.0.0.0/8"},
		"another one":          {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "10.201.0.0/16" }, netv1alpha1.ReasonNetworkChanged, "podCIDR is now 10.201.0.0/16, and 10.200.0.0/16 is in use"},
		"a lane from afar":     {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[1].Number = 70 }, netv1alpha1.ReasonLaneInvalid, "lane 70"},
	} {
		bad.amend(func(to *netv1alpha1.NetworkConfigSpec) {
			*to = *spec.DeepCopy()
			row.change(to)
		})
		bad.decided(row.reason, row.part)
		if status := bad.copy.Status; status.Processed || status.PodCIDRNAT != "" || status.ExternalCIDRNAT != "" {
			t.Errorf("%s: answered %+v", name, status)
		}
		b.Read(bad.tunnel)
		if bad.tunnel.Generation != agreed.Generation {
			t.Errorf("%s: the tunnel follows: %+v", name, bad.tunnel.Spec)
		}
	}
	b.Until("the tunnel reports the refusal", func() bool {
		b.Read(bad.tunnel)
		return slices.ContainsFunc(bad.tunnel.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == netv1alpha1.ConditionReady && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "stays in use")
		})
	})
	// The assigned prefix of another peer is remapped, once an administrator agrees to the change.
	bad.accept(before.RemoteNATPodCIDR)
	bad.amend(func(to *netv1alpha1.NetworkConfigSpec) {
		*to = *spec.DeepCopy()
		to.PodCIDR = netv1alpha1.CIDR(before.RemoteNATPodCIDR)
	})
	bad.decided(netv1alpha1.ReasonAgreed, "")
	if bad.copy.Status.PodCIDRNAT == "None" || bad.copy.Status.PodCIDRNAT == before.RemoteNATPodCIDR {
		t.Errorf("assigned %s, which belongs to the other peer", bad.copy.Status.PodCIDRNAT)
	}
	// An answer that would send our packets to another host is refused.
	for _, nat := range []string{"0.0.0.0/0", "10.0.0.0/8", "127.0.0.0/16", "10.40.0.5/16", "x"} {
		bad.answers(nat, "None")
		bad.published(netv1alpha1.ReasonAnswerInvalid, "podCIDRNAT")
		bad.answers("None", "None")
		bad.published(netv1alpha1.ReasonPublished, "")
	}
	b.Read(good.tunnel)
	if good.tunnel.Spec.RemoteNATPodCIDR != before.RemoteNATPodCIDR || good.tunnel.Generation != 1 {
		t.Errorf("the good peer is affected: %+v", good.tunnel.Spec)
	}
	// A copy with the name of our own NetworkConfig is deleted.
	b.Must(b.Delete(t.Context(), bad.ours))
	squat := bad.copy.DeepCopy()
	squat.ObjectMeta = metav1.ObjectMeta{Namespace: bad.copy.Namespace, Name: bad.ours.Name, Labels: bad.copy.Labels}
	b.Until("the peer takes the name of ours, or we were faster", func() bool { return b.Create(t.Context(), squat) == nil || b.there(bad.ours) })
	b.Until("ours is back", func() bool { return b.there(bad.ours) && tenants.IsOwn(bad.ours) })
	for _, one := range []client.Object{good.tunnel, bad.tunnel} {
		if len(one.GetFinalizers()) > 0 {
			t.Errorf("finalizers %v", one.GetFinalizers())
		}
	}
}

// TestOtherConfigsAreIgnored: however many copies a peer creates, only the one with the expected name is used, and one event warns of the others.
func TestOtherConfigsAreIgnored(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	bad := b.peer("bad")
	bad.outgoing(discoveryv1alpha1.StatusEstablished)
	const many = 200
	for i := range many { // older than the one that counts
		stray := bad.claims("10.55.0.0/16", "10.56.0.0/16", 9)
		stray.Name = fmt.Sprintf("network-%d", i)
		b.Make(stray)
	}
	b.run()
	bad.published(netv1alpha1.ReasonAnswerPending, "")
	bad.reports("10.201.0.0/16", "10.202.0.0/16", 1)
	bad.answers("None", "None")
	bad.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	if spec := bad.tunnel.Spec; spec.RemotePodCIDR != "10.201.0.0/16" || spec.Lanes[0].PublicKey != testKey(1) {
		t.Errorf("agreed %+v", spec)
	}
	var all netv1alpha1.NetworkConfigList
	b.Must(b.List(t.Context(), &all, client.InNamespace(bad.copy.Namespace)))
	for i := range all.Items {
		if one := &all.Items[i]; tenants.IsCopy(one) && one.Name != bad.copy.Name && one.Status.ObservedGeneration > 0 {
			t.Errorf("%s is answered", one.Name)
		}
	}
	b.Until("an event of the ForeignCluster warns", func() bool {
		var recorded eventsv1.EventList
		b.Must(b.List(t.Context(), &recorded))
		n := 0
		for i := range recorded.Items {
			if one := &recorded.Items[i]; one.Reason == "NetworkConfigIgnored" && one.Regarding.Name == "bad" && strings.Contains(one.Note, bad.copy.Name) {
				n++
			}
		}
		if n > 1 {
			t.Fatalf("%d events", n)
		}
		return n == 1
	})
	before := b.writes.count()
	for i := range 20 {
		stray := &netv1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: bad.copy.Namespace, Name: fmt.Sprintf("network-%d", i)}}
		b.Edit(stray, func() { stray.Spec.Lanes[0].Carriers[0].Port = 7000 })
	}
	// The key of an ignored copy does not block other peers.
	good := b.peer("good")
	good.writeDown("10.55.0.0/16", "10.56.0.0/16")
	good.outgoing(discoveryv1alpha1.StatusEstablished)
	good.reports("10.55.0.0/16", "10.56.0.0/16", 9)
	good.seen("None", "None")
	b.expectNoWrites("a change that does not count, and one claim", time.Second)
	for _, one := range b.writes.since(before) {
		if !strings.Contains(one, "/"+good.copy.Namespace+"/") {
			t.Errorf("a write for what does not count: %s", one)
		}
	}
}

// TestOldNameGoes: the NetworkConfig that an earlier version published under another name is deleted.
func TestOldNameGoes(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	old := milan.claims("10.200.0.0/16", "10.0.0.0/16", 9)
	old.Name, old.Labels = milan.id.UniqueName(), map[string]string{labels.Replication: "true", labels.RemoteID: milan.id.ClusterID, labels.Ownership: labels.OwnershipConfig}
	b.Make(old)
	b.run()
	milan.published(netv1alpha1.ReasonAnswerPending, "")
	if b.there(old) {
		t.Error("two objects announce our network")
	}
}

// TestExternalStays: a peer that claims our external network while our controllers are stopped is remapped, and ours stays.
func TestExternalStays(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	stop := b.run()
	bad := b.peer("bad")
	bad.writeDown("10.40.0.0/16", "10.41.0.0/16")
	bad.outgoing(discoveryv1alpha1.StatusEstablished)
	bad.reports("10.40.0.0/16", "10.41.0.0/16", 1)
	bad.seen("None", "None")
	b.Until("ours is published", func() bool { return b.there(bad.ours) })
	had := bad.ours.Spec.ExternalCIDR
	stop()
	bad.accept(string(had))
	bad.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.PodCIDR = had })
	b.run()
	b.Until("it is decided", func() bool {
		b.Read(bad.copy)
		return bad.copy.Status.ObservedGeneration == bad.copy.Generation
	})
	b.expectNoWrites("everything is published", 300*time.Millisecond)
	b.Read(bad.ours)
	if now := bad.ours.Spec.ExternalCIDR; now != had || bad.copy.Status.PodCIDRNAT == netv1alpha1.NotRemapped {
		t.Errorf("our external network was %s and is %s; the peer's pods are reached as %s", had, now, bad.copy.Status.PodCIDRNAT)
	}
}

// TestKeyOfAnother: a key belongs to the peer that agreed on it first, on the lanes that are in use.
func TestKeyOfAnother(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	bad, good := b.peer("bad"), b.peer("good")
	bad.outgoing(discoveryv1alpha1.StatusEstablished)
	bad.reports("10.200.0.0/16", "10.40.0.0/16", 2)
	bad.amend(func(to *netv1alpha1.NetworkConfigSpec) { // the two keys of good, lane 0's on a lane of bad, lane 1's on a lane that is not here
		to.Lanes = []netv1alpha1.Lane{
			{Number: 0, PublicKey: testKey(2)}, {Number: 1, PublicKey: testKey(101)}, {Number: 2, PublicKey: testKey(1)},
		}
	})
	bad.answers("None", "None")
	bad.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	good.outgoing(discoveryv1alpha1.StatusEstablished)
	good.reports("10.201.0.0/16", "10.41.0.0/16", 1)
	good.decided(netv1alpha1.ReasonAgreed, "")
	good.answers("None", "None")
	good.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	if lanes := good.tunnel.Spec.Lanes; len(lanes) != 1 || lanes[0].PublicKey != testKey(1) {
		t.Errorf("lanes %+v; want lane 0 alone, the key of lane 1 is another's", lanes)
	}
	// An agreed key stays, although another peer claims it afterwards.
	bad.amend(func(to *netv1alpha1.NetworkConfigSpec) {
		to.Lanes[0].PublicKey, to.Lanes[2].PublicKey = testKey(1), testKey(2)
	})
	bad.decided(netv1alpha1.ReasonKeyInUse, "cluster good")
	good.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].Carriers[0].Port = 5999 })
	good.decided(netv1alpha1.ReasonAgreed, "")
}

// TestConnection: the status of the tunnel follows the reports of the gateways, without needless writes.
func TestConnection(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.service(1, corev1.ServiceTypeNodePort)
	first, second := b.gateway(0, "n1"), b.gateway(1, "n1")
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	milan.reports("10.201.0.0/16", "10.202.0.0/16", 1)
	b.run()
	milan.answers("None", "None")
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewayFailed, "lane 0: gateway pod liqo-gateway-0-abc has not created the tunnel yet; lane 1")

	down := report.Peer{ClusterID: "milan-id", SilentMilliseconds: -1, HandshakeSeconds: -1, Endpoint: "203.0.113.7:5871"}
	up := report.Peer{
		ClusterID: "milan-id", Up: true, RTTMicroseconds: 1200, HandshakeSeconds: 3, SilentMilliseconds: 20, Endpoint: "203.0.113.7:5871",
		RemoteKey: testKey(1), MTU: 1420, Nodes: []report.Node{{Name: "n1", Lane: 0, LanesUp: []int{0}}},
	}
	first.reports(func(r *report.Gateway) { r.Peers = []report.Peer{down} })
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonNoHandshake, "203.0.113.7:5871")
	first.reports(func(r *report.Gateway) { r.Peers = []report.Peer{up} })
	milan.connected(netv1alpha1.Connected, netv1alpha1.ReasonDegraded, "lane 0 up; lane 1")
	second.reports(func(r *report.Gateway) {
		better := up
		better.MTU = 1380
		r.Peers = []report.Peer{better}
	})
	milan.connected(netv1alpha1.Connected, netv1alpha1.ReasonConnected, "lane 0, 1 up")
	connection := milan.tunnel.Status.Connection
	if connection.MTU != 1380 || connection.PeerConfiguration["endpointIP"] != "203.0.113.7" || connection.PeerConfiguration["port"] != "5871" ||
		connection.PeerConfiguration["allowedIPs"] != "242.177.0.0/16,242.178.0.0/16" || connection.PeerConfiguration["lane"] != "0" || !strings.HasPrefix(connection.Latency.Value, "1.") ||
		milan.tunnel.Status.GatewayIP != "127.0.1.1" {
		t.Errorf("%+v, gateway %s", connection, milan.tunnel.Status.GatewayIP)
	}
	b.expectNoWrites("ages grow and latencies waver", 3*time.Second)

	// One node is cut off: an error, after lostGrace (TestLoss judges that time).
	cut := func(r *report.Gateway) { r.Peers[0].Nodes = []report.Node{{Name: "n1", Lane: -1}} }
	first.reports(cut)
	second.reports(cut)
	milan.connected(netv1alpha1.ConnectionError, netv1alpha1.ReasonNodesCutOff, "node n1")
	if meta.IsStatusConditionTrue(milan.tunnel.Status.Conditions, netv1alpha1.ConditionUsable) {
		t.Errorf("no node reaches the peer, and it is usable: %+v", milan.tunnel.Status.Conditions)
	}
	b.Until("an event names the node", func() bool {
		var recorded eventsv1.EventList
		b.Must(b.List(t.Context(), &recorded))
		return slices.ContainsFunc(recorded.Items, func(one eventsv1.Event) bool {
			return one.Reason == netv1alpha1.ReasonNodesCutOff && one.Regarding.Name == "milan" && strings.Contains(one.Note, "node n1")
		})
	})
	heal := func(r *report.Gateway) { r.Peers = []report.Peer{up} }
	first.reports(heal)
	second.reports(heal)
	milan.connected(netv1alpha1.Connected, netv1alpha1.ReasonConnected, "")

	// Gateways that hang count as silent.
	first.hang(true)
	second.hang(true)
	milan.connected(netv1alpha1.ConnectionError, netv1alpha1.ReasonGatewaySilent, "does not report")
	first.hang(false)
	second.hang(false)
	milan.connected(netv1alpha1.Connected, netv1alpha1.ReasonConnected, "")

	// A pod that is gone.
	b.Must(b.Delete(t.Context(), second.pod, client.GracePeriodSeconds(0)))
	milan.connected(netv1alpha1.Connected, netv1alpha1.ReasonDegraded, "lane 1: no gateway pod runs")
}

// TestKeys: made once, rotated on demand, and never lost.
func TestKeys(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	pod := map[string]string{"app": "manager"}
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "liqo-controller-manager"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: pod},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}},
	}}
	b.Make(manager)
	stop := b.run()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: keyring.SecretName}}
	b.Until("keys are made", func() bool { return b.there(secret) })
	// Kubernetes deletes them with their owner.
	want := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: manager.Name, UID: manager.UID}}
	if !slices.Equal(secret.OwnerReferences, want) {
		t.Errorf("owner of the keys %v, want %v", secret.OwnerReferences, want)
	}
	keys, err := keyring.Keys(secret)
	b.Must(err)
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	milan.answers("None", "None")
	if milan.ours.Spec.Lanes[0].PublicKey != keys[0].Public || len(keys) != 8 || keys[0].Public == keys[1].Public {
		t.Fatalf("announced %s, have %v", milan.ours.Spec.Lanes[0].PublicKey, keys)
	}
	stop()
	stop = b.run()
	milan.published(netv1alpha1.ReasonPublished, "")
	b.expectNoWrites("after a restart", 300*time.Millisecond)
	announced := func() string { b.Read(milan.ours); return milan.ours.Spec.Lanes[0].PublicKey }
	current := func() string {
		b.Read(secret)
		now, err := keyring.Keys(secret)
		b.Must(err)
		return now[0].Public
	}
	if current() != keys[0].Public {
		t.Error("a restart changed the keys")
	}

	b.Edit(secret, func() { secret.Annotations = map[string]string{labels.RotateKeys: "monday"} })
	b.Until("the next key is announced", func() bool { return announced() != keys[0].Public })
	if current() != keys[0].Public {
		t.Error("the key changed before the peer knew the next one")
	}
	next := announced()
	milan.answers("None", "None")
	b.Until("the next key is in use", func() bool { return current() == next })
	if announced() != next {
		t.Error("the announced key differs from the one in use")
	}
	b.expectNoWrites("after a rotation", 500*time.Millisecond)

	// An unreadable key is not overwritten.
	stop()
	b.Edit(secret, func() { secret.Data["lane-0.current"] = []byte("garbage") })
	b.run()
	b.expectNoWrites("with a broken key", time.Second)
	b.Read(secret)
	if string(secret.Data["lane-0.current"]) != "garbage" {
		t.Error("a key was overwritten")
	}

	// An uninstallation deletes the Deployment, and Kubernetes the keys with it, before this process has ended: keys that it makes meanwhile go as well.
	b.Must(b.Delete(t.Context(), manager))
	b.Must(b.Delete(t.Context(), secret))
	before := secret.UID
	b.Until("keys are made again", func() bool { return b.there(secret) && secret.UID != before })
	if !slices.Equal(secret.OwnerReferences, want) {
		t.Errorf("after the Deployment, the owner of the keys is %v, want %v", secret.OwnerReferences, want)
	}
}

// TestMappings: each mapping gets one address of its own, for good.
func TestMappings(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	mapping := func(name, address string, ids ...string) *netv1alpha1.IPMapping {
		m := &netv1alpha1.IPMapping{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1alpha1.IPMappingSpec{Address: address, ClusterIDs: ids}}
		b.Make(m)
		return m
	}
	expect := func(m *netv1alpha1.IPMapping, reason, part string) {
		t.Helper()
		b.Until(m.Name+" is "+reason, func() bool {
			b.Read(m)
			return len(m.Status.Conditions) == 1 && m.Status.Conditions[0].Reason == reason && strings.Contains(m.Status.Conditions[0].Message, part)
		})
	}
	stop := b.run()
	api, dns := mapping("api", "10.96.0.1"), mapping("dns", "10.96.0.10", "paris-id")
	expect(api, netv1alpha1.ReasonAssigned, "")
	expect(dns, netv1alpha1.ReasonAssigned, "")
	if api.Status.ExternalAddress == dns.Status.ExternalAddress || !strings.HasPrefix(api.Status.ExternalAddress, "242.0.") {
		t.Errorf("%s and %s", api.Status.ExternalAddress, dns.Status.ExternalAddress)
	}
	// A pod of another peer, which a Service of this cluster has as an endpoint.
	expect(mapping("of-a-peer", "242.3.0.9", "paris-id"), netv1alpha1.ReasonAssigned, "")
	for address, part := range map[string]string{
		"10.200.3.4": "pod network", "127.0.0.1": "loopback", "169.254.169.254": "link-local", "ten": "not an IP address", "242.0.3.3": "external network", "fd00::1": "IPv4",
	} {
		expect(mapping("bad-"+strings.NewReplacer(".", "-", ":", "-").Replace(address), address), netv1alpha1.ReasonAddressInvalid, part)
	}
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	milan.reports("10.201.0.0/16", "10.202.0.0/16", 1)
	milan.answers("None", "10.77.0.0/16")
	b.Until("the peer's address is reported", func() bool { b.Read(api); return api.Status.PeerAddresses["milan-id"] != "" })
	if got, want := api.Status.PeerAddresses["milan-id"], strings.Replace(api.Status.ExternalAddress, "242.0.", "10.77.", 1); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.Read(dns)
	if len(dns.Status.PeerAddresses) > 0 {
		t.Errorf("dns is not for milan: %v", dns.Status.PeerAddresses)
	}
	had := api.Status.ExternalAddress
	stop()
	b.run()
	late := mapping("late", "10.96.0.11")
	expect(late, netv1alpha1.ReasonAssigned, "")
	b.Read(api)
	if api.Status.ExternalAddress != had || late.Status.ExternalAddress == had {
		t.Errorf("had %s, has %s, a later one has %s", had, api.Status.ExternalAddress, late.Status.ExternalAddress)
	}
}

// TestPendingBalancer: a gateway without an address is announced without one, and a condition gives the reason.
func TestPendingBalancer(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.run()
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	milan.published(netv1alpha1.ReasonGatewayNotFound, "net.liqo.io/gateway=true")
	service := b.service(0, corev1.ServiceTypeLoadBalancer)
	milan.published(netv1alpha1.ReasonGatewayNoAddress, "liqo/liqo-gateway")
	b.Read(milan.ours)
	if lanes := milan.ours.Spec.Lanes; len(lanes) != 1 || len(lanes[0].Carriers) > 0 || lanes[0].PublicKey == "" || milan.ours.Spec.EndpointIP != "" {
		t.Errorf("published %+v", milan.ours.Spec)
	}
	b.EditStatus(service, func() { service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}} })
	milan.published(netv1alpha1.ReasonAnswerPending, "")
	b.Read(milan.ours)
	if milan.ours.Spec.EndpointIP != "203.0.113.9" || milan.ours.Spec.BackendConfig["port"] != "5871" {
		t.Errorf("published %+v", milan.ours.Spec)
	}
}

// TestNodePorts: the announced addresses of a gateway behind node ports follow its pod, its nodes and the Service.
func TestNodePorts(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	second := b.node("n2", "192.0.2.2", true)
	b.node("n3", "192.0.2.3", false)
	b.EditStatus(second, func() {
		second.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.2"}, {Type: corev1.NodeExternalIP, Address: "198.51.100.2"}, {Type: corev1.NodeHostName, Address: "n2"},
		}
	})
	service := b.service(0, corev1.ServiceTypeNodePort)
	port := service.Spec.Ports[1].NodePort
	if port == 0 {
		t.Fatal("the API server gave the Service no node port")
	}
	b.run()
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	announced := func(what string, want ...string) {
		t.Helper()
		var got []string
		defer func() {
			if t.Failed() {
				t.Logf("announced %v, want %v", got, want)
			}
		}()
		b.Until(what, func() bool {
			if got = nil; !b.there(milan.ours) {
				return false
			}
			spec := milan.ours.Spec
			if carriers := spec.Lanes[0].Carriers; len(carriers) == 1 {
				if got = carriers[0].Addresses; carriers[0].Port != port || spec.EndpointIP != got[0] || spec.BackendConfig["port"] != strconv.Itoa(int(port)) {
					return false
				}
			}
			return slices.Equal(got, want)
		})
	}
	announced("nodes that are Ready", "192.0.2.1", "198.51.100.2", "192.0.2.2")
	pod := b.gateway(0, "n2").pod
	announced("the node of the pod first", "198.51.100.2", "192.0.2.2", "192.0.2.1")
	b.Edit(service, func() { service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	announced("only that one serves", "198.51.100.2", "192.0.2.2")
	b.Must(b.Delete(t.Context(), second))
	announced("its node is gone")
	milan.published(netv1alpha1.ReasonGatewayNoAddress, "externalTrafficPolicy is Local")
	b.Must(b.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	b.Edit(service, func() { service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster })
	announced("the others serve again", "192.0.2.1")
	milan.published(netv1alpha1.ReasonAnswerPending, "")
	b.Edit(service, func() { service.Spec.Ports[1].NodePort = 0 }) // another one is given
	b.Read(service)
	port = service.Spec.Ports[1].NodePort
	announced("at the port that it has now", "192.0.2.1")
	first := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	b.EditStatus(first, func() { first.Status.Conditions[0].Status = corev1.ConditionUnknown })
	announced("no node is Ready")
	milan.published(netv1alpha1.ReasonGatewayNoAddress, "no Ready node")
}

// After a peer changed its key, the tunnel holds the new key and the previous one, and nothing is written twice.
func TestPreviousKeyIsPublished(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	milan.reports("10.201.0.0/16", "10.202.0.0/16", 1)
	milan.answers("None", "None")
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	if key, _, ok := milan.tunnel.Spec.PreviousKey(0); ok {
		t.Errorf("a new tunnel has the previous key %s", key)
	}
	milan.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].PublicKey = testKey(3) })
	b.Until("the new key is there, with the one before", func() bool {
		b.Read(milan.tunnel)
		key, until, ok := milan.tunnel.Spec.PreviousKey(0)
		return milan.tunnel.Spec.Lanes[0].PublicKey == testKey(3) && ok && key == testKey(1) && time.Since(until) < time.Minute
	})
	b.expectNoWrites("after that", time.Second)
}
