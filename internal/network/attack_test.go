// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/network/signature"
)

// TestAttackH2NetworkConfig plays an attacker who can write into the tenant namespace, with a stolen token of the peer, or who has an API server on the
// way. Gateways plan from the TunnelEndpoint alone, and it keeps what the peer itself signed.
func TestAttackH2NetworkConfig(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	stop := b.run()
	milan, paris := b.peer("milan"), b.peer("paris")
	for i, p := range []*peer{milan, paris} {
		p.outgoing(discoveryv1alpha1.StatusEstablished)
		p.reports(fmt.Sprintf("10.20%d.0.0/16", i+1), fmt.Sprintf("10.4%d.0.0/16", i), byte(i+1))
		p.answers("None", "None")
		p.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	}
	old := milan.copy.DeepCopy()
	milan.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].PublicKey = testKey(30) }) // for example because the old key was stolen
	b.Until("the new key is agreed", func() bool { b.Read(milan.tunnel); return milan.tunnel.Spec.Lanes[0].PublicKey == testKey(30) })
	milan.published(netv1alpha1.ReasonPublished, "")
	genuine, agreed := milan.copy.Spec.DeepCopy(), milan.tunnel.Spec.DeepCopy()
	thief, err := clusterkey.Generate()
	b.Must(err)
	// The replaced key counts for a while only, which a controller begins again while its cache is behind its own write.
	replaced := testKey(1)
	lasting := func(spec *netv1alpha1.TunnelEndpointSpec) *netv1alpha1.TunnelEndpointSpec {
		spec = spec.DeepCopy()
		if previous, _, known := spec.PreviousKey(0); known && previous == replaced {
			delete(spec.BackendConfig, netv1alpha1.PreviousKeyEntry(0))
		}
		return spec
	}
	unchanged := func(what string) {
		t.Helper()
		if b.Read(milan.tunnel); !equality.Semantic.DeepEqual(lasting(&milan.tunnel.Spec), lasting(agreed)) {
			t.Fatalf("%s: the gateways follow %+v, agreed was %+v", what, milan.tunnel.Spec, *agreed)
		}
	}

	for name, row := range map[string]struct {
		change func(*netv1alpha1.NetworkConfigSpec)
		reason string
	}{
		"another key":      {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].PublicKey = testKey(66) }, netv1alpha1.ReasonSignatureInvalid},
		"another endpoint": {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].Carriers[0].Addresses[0] = "198.51.100.66" }, netv1alpha1.ReasonSignatureInvalid},
		"another network":  {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "10.66.0.0/16" }, netv1alpha1.ReasonSignatureInvalid},
		"a later version":  {func(s *netv1alpha1.NetworkConfigSpec) { s.Version++ }, netv1alpha1.ReasonSignatureInvalid},
		"unsigned": {func(s *netv1alpha1.NetworkConfigSpec) {
			s.Lanes[0].PublicKey, s.Signatures = testKey(66), nil
		}, netv1alpha1.ReasonNotSigned},
		"signed by the thief": {func(s *netv1alpha1.NetworkConfigSpec) {
			s.Lanes[0].PublicKey = testKey(66)
			s.Signatures = signature.Config(thief, milan.id.ClusterID, s)
		}, netv1alpha1.ReasonSignatureInvalid},
		"signed by the thief as milan": {func(s *netv1alpha1.NetworkConfigSpec) {
			s.Lanes[0].PublicKey = testKey(66)
			s.Signatures[0].Value = signature.Config(thief, milan.id.ClusterID, s)[0].Value
		}, netv1alpha1.ReasonSignatureInvalid},
		"signed by another peer": {func(s *netv1alpha1.NetworkConfigSpec) { *s = *paris.copy.Spec.DeepCopy() }, netv1alpha1.ReasonSignatureInvalid},
		"replayed":               {func(s *netv1alpha1.NetworkConfigSpec) { *s = *old.Spec.DeepCopy() }, netv1alpha1.ReasonVersionOld},
	} {
		b.Edit(milan.copy, func() {
			milan.copy.Spec = *genuine.DeepCopy()
			row.change(&milan.copy.Spec)
		})
		milan.decided(row.reason, "milan")
		unchanged(name)
	}
	for _, reason := range []string{netv1alpha1.ReasonSignatureInvalid, netv1alpha1.ReasonNotSigned, netv1alpha1.ReasonVersionOld} {
		b.Until("an event of the ForeignCluster reports "+reason, func() bool {
			var recorded eventsv1.EventList
			b.Must(b.List(t.Context(), &recorded))
			for i := range recorded.Items {
				if one := &recorded.Items[i]; one.Reason == reason && one.Regarding.Name == "milan" {
					return true
				}
			}
			return false
		})
	}

	// The answer to our network is signed as well.
	b.Edit(milan.copy, func() { milan.copy.Spec = *genuine.DeepCopy() })
	milan.decided(netv1alpha1.ReasonAgreed, "")
	b.EditStatus(milan.ours, func() { milan.ours.Status.PodCIDRNAT = "10.66.0.0/16" })
	milan.published(netv1alpha1.ReasonAnswerInvalid, "does not match its content")
	unchanged("a forged answer")
	milan.answers("None", "None")
	milan.published(netv1alpha1.ReasonPublished, "")

	// Deleting the copy ends the tunnel, as the peer may. An older one does not bring it back, after a restart neither.
	b.Must(b.Delete(t.Context(), milan.copy))
	b.Until("the tunnel is gone", func() bool { return !b.there(milan.tunnel) })
	stop()
	b.run()
	milan.copy = old.DeepCopy()
	milan.copy.ObjectMeta = metav1.ObjectMeta{Namespace: old.Namespace, Name: old.Name, Labels: old.Labels}
	b.Make(milan.copy)
	milan.decided(netv1alpha1.ReasonVersionOld, "")
	if b.there(milan.tunnel) {
		t.Errorf("a replayed configuration makes a tunnel: %+v", milan.tunnel.Spec)
	}
	b.Edit(milan.copy, func() { milan.copy.Spec = *genuine.DeepCopy() })
	milan.decided(netv1alpha1.ReasonAgreed, "")
	b.Until("the tunnel is back", func() bool { return b.there(milan.tunnel) })
}

// TestAttackM3: a mapping that Liqo made for endpoints leads to no host of this cluster, whatever address a user wrote into an EndpointSlice. One that an
// administrator made does.
func TestAttackM3(t *testing.T) {
	b := newBench(t)
	b.options.Pools.Reserved = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/16")}
	b.node("n1", "198.51.100.76", true)
	b.service(0, corev1.ServiceTypeNodePort)
	mapping := func(name, address string, restricted bool) *netv1alpha1.IPMapping {
		m := &netv1alpha1.IPMapping{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1alpha1.IPMappingSpec{
			Address: address, Restricted: restricted, Ports: []netv1alpha1.MappingPort{{Protocol: corev1.ProtocolTCP, Port: 10250}},
		}}
		b.Make(m)
		return m
	}
	expect := func(m *netv1alpha1.IPMapping, reason, part string) {
		t.Helper()
		b.Until(m.Name+" is "+reason, func() bool {
			b.Read(m)
			return len(m.Status.Conditions) == 1 && m.Status.Conditions[0].Reason == reason && strings.Contains(m.Status.Conditions[0].Message, part)
		})
		if (m.Status.ExternalAddress == "") != (reason == netv1alpha1.ReasonAddressRefused) {
			t.Errorf("%s has the address %q", m.Name, m.Status.ExternalAddress)
		}
	}
	b.run()
	expect(mapping("node", "198.51.100.76", true), netv1alpha1.ReasonAddressRefused, "address of node n1")
	expect(mapping("service", "10.96.0.1", true), netv1alpha1.ReasonAddressRefused, "service network")
	expect(mapping("reserved", "10.99.3.4", true), netv1alpha1.ReasonAddressRefused, "10.99.0.0/16")
	expect(mapping("asked-for", "198.51.100.76", false), netv1alpha1.ReasonAssigned, "")
	later := mapping("later", "198.51.100.77", true)
	expect(later, netv1alpha1.ReasonAssigned, "")
	b.node("n2", "198.51.100.77", true) // the address moves to a node
	expect(later, netv1alpha1.ReasonAddressRefused, "address of node n2")
}

// TestAttackNM5: what a virtual kubelet maps without a restriction is the API server, and nothing else of this cluster.
func TestAttackNM5(t *testing.T) {
	b := newBench(t)
	b.options.IPMapping.APIServer = netip.MustParseAddr("10.96.0.1")
	b.node("n1", "198.51.100.76", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	for address, want := range map[string]string{"10.96.0.1": netv1alpha1.ReasonAssigned, "198.51.100.76": netv1alpha1.ReasonAddressRefused, "198.51.100.90": netv1alpha1.ReasonAssigned} {
		mapping := &netv1alpha1.IPMapping{
			ObjectMeta: metav1.ObjectMeta{
				Name: "of-" + address, Labels: map[string]string{labels.RemoteClusterID: "milan-id"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "liqo-milan", UID: "1"}},
			},
			Spec: netv1alpha1.IPMappingSpec{Address: address, ClusterIDs: []string{"milan-id"}, Ports: []netv1alpha1.MappingPort{{Protocol: corev1.ProtocolTCP, Port: 10250}}},
		}
		b.Make(mapping)
		b.Until("the mapping of "+address+" is "+want, func() bool {
			b.Read(mapping)
			return len(mapping.Status.Conditions) == 1 && mapping.Status.Conditions[0].Reason == want
		})
	}
}

// TestPinnedKey: nothing is believed before first contact pins the key of the peer, and a rotation of either cluster's key changes no tunnel.
func TestPinnedKey(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	milan := b.peer("milan")
	b.Edit(milan.fc, func() { milan.fc.Spec.ClusterKey = "" })
	milan.outgoing(discoveryv1alpha1.StatusPending)
	milan.reports("10.201.0.0/16", "10.40.0.0/16", 1)
	milan.decided(netv1alpha1.ReasonKeyNotPinned, "liqoctl status peer milan")
	b.Edit(milan.fc, func() { milan.fc.Spec.ClusterKey = milan.keys.Fingerprint() })
	milan.decided(netv1alpha1.ReasonAgreed, "")
	milan.answers("None", "None")
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")

	// The peer has a new key and signs with both until we know it.
	next, err := clusterkey.Generate()
	b.Must(err)
	milan.keys = clusterkey.Keys{Current: next.Current, Previous: milan.keys.Current}
	milan.amend(func(*netv1alpha1.NetworkConfigSpec) {})
	milan.answers("None", "None")
	milan.decided(netv1alpha1.ReasonAgreed, "")
	b.Edit(milan.fc, func() { milan.fc.Spec.ClusterKey = milan.keys.Fingerprint() })
	milan.keys.Previous = nil
	milan.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].Carriers[0].Port = 5999 })
	b.Until("the new key is believed", func() bool { b.Read(milan.tunnel); return milan.tunnel.Spec.Lanes[0].Carriers[0].Port == 5999 })

	// So do we, without another version: nothing else has changed.
	before := milan.ours.Spec.Version
	check := func(pin string) error {
		b.Read(milan.ours)
		b.Read(milan.copy)
		exchange := signature.Exchange{Asker: "milan-id", Answerer: "rome-id", Config: &milan.copy.Spec, Answer: &milan.copy.Status}
		if err := signature.CheckAnswer(pin, exchange); err != nil {
			return err
		}
		return signature.CheckConfig(pin, "rome-id", &milan.ours.Spec)
	}
	b.Must(check(b.keys.Fingerprint()))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: clusterkey.Secret}}
	rotated := clusterkey.Keys{Current: next.Current, Previous: b.keys.Current}
	b.Edit(secret, func() { secret.Data = rotated.Data() })
	b.Until("both keys sign", func() bool { return check(rotated.Fingerprint()) == nil && check(b.keys.Fingerprint()) == nil })
	if milan.ours.Spec.Version != before || before == 0 {
		t.Errorf("version %d before, %d after the rotation", before, milan.ours.Spec.Version)
	}
	rotated.Previous = nil
	b.Edit(secret, func() { secret.Data = rotated.Data() })
	b.Until("the old key is forgotten", func() bool { return check(rotated.Fingerprint()) == nil && check(b.keys.Fingerprint()) != nil })
}

// TestAttackUnanswered: the pod network of this cluster is corrected, one peer answers, and another one never does. The status of its tunnel reports that, also
// after it publishes what is refused, so that the agents follow the other one; see the test of the same name in internal/network/agent.
func TestAttackUnanswered(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	stop := b.run()
	dead, alive := b.peer("dead"), b.peer("alive")
	for i, p := range []*peer{dead, alive} {
		p.outgoing(discoveryv1alpha1.StatusEstablished)
		p.reports("10.210.0.0/16", "10.211.0.0/16", byte(i+1))
		p.answers("None", "None")
		p.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	}
	stop()
	b.options.Pools.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.205.0.0/16")}
	b.run()
	ready := func(p *peer, reason string) func() bool {
		return func() bool {
			b.Read(p.tunnel)
			condition := meta.FindStatusCondition(p.tunnel.Status.Conditions, netv1alpha1.ConditionReady)
			return condition != nil && condition.Reason == reason && condition.ObservedGeneration == p.tunnel.Generation
		}
	}
	b.Until("neither peer has answered", func() bool {
		return ready(dead, netv1alpha1.ReasonAnswerPending)() && ready(alive, netv1alpha1.ReasonAnswerPending)()
	})
	alive.answers("None", "None")
	b.Until("agreed with the peer that answers", func() bool {
		return ready(alive, netv1alpha1.ReasonAgreed)() && alive.tunnel.Spec.LocalPodCIDR == "10.205.0.0/16"
	})
	dead.amend(func(spec *netv1alpha1.NetworkConfigSpec) { spec.Cluster.ClusterID = "another-id" })
	dead.decided(netv1alpha1.ReasonWrongDestination, "")
	time.Sleep(time.Second) // only waiting shows that nothing happens
	if !ready(dead, netv1alpha1.ReasonAnswerPending)() || dead.tunnel.Spec.LocalPodCIDR == "10.205.0.0/16" {
		t.Errorf("the tunnel of a peer that has not answered: %+v, %+v", dead.tunnel.Spec, dead.tunnel.Status.Conditions)
	}
}

// TestAttackSameName plays a cluster whose ForeignCluster has the tenant namespace of another one: it chose its name and its ID so that both have the same unique
// name. The tunnel of the other one stays, and so does what is announced to it.
func TestAttackSameName(t *testing.T) {
	b := newBench(t)
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	b.run()
	milan := b.peer("milan")
	milan.outgoing(discoveryv1alpha1.StatusEstablished)
	milan.reports("10.201.0.0/16", "10.40.0.0/16", 1)
	milan.answers("None", "None")
	milan.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	b.Read(milan.tunnel)
	tunnel, ours := milan.tunnel.UID, milan.ours.UID

	id := discoveryv1alpha1.ClusterIdentity{ClusterID: "dddddddd-0000-4000-8000-000000f7a5bd", ClusterName: "milan"}
	if id.UniqueName() != milan.id.UniqueName() {
		t.Fatalf("%s, %s", id.UniqueName(), milan.id.UniqueName())
	}
	thief := &discoveryv1alpha1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "a-thief", Labels: map[string]string{labels.ClusterID: id.ClusterID, labels.DiscoveryType: labels.DiscoveryIncoming}},
		Spec:       discoveryv1alpha1.ForeignClusterSpec{ClusterIdentity: &id, ClusterKey: milan.keys.Fingerprint()},
	}
	b.Make(thief)
	b.EditStatus(thief, func() {
		thief.Status.TenantNamespace.Local = id.TenantNamespace()
		thief.Status.Incoming = &discoveryv1alpha1.IncomingStatus{State: discoveryv1alpha1.IncomingAccepted, Since: metav1.Now().Rfc3339Copy(), Message: "m"}
	})
	// While both have the namespace, the controllers read every change and write nothing. When the thief has lost it, they follow milan again.
	b.expectNoWrites("the namespace is that of two peers", time.Second)
	b.EditStatus(thief, func() { thief.Status.TenantNamespace.Local = "" })
	milan.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].PublicKey = testKey(30) })
	b.Until("the tunnel follows milan", func() bool { return b.there(milan.tunnel) && milan.tunnel.Spec.Lanes[0].PublicKey == testKey(30) })
	if b.Read(milan.ours); milan.tunnel.UID != tunnel || milan.ours.UID != ours {
		t.Error("the tunnel of milan, or what is announced to it, was deleted")
	}
}
