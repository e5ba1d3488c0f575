// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/network/gateways"
)

// TestLiterals: a peer is remapped if its network contains an address that this cluster talks to. An address inside the assigned prefix of another
// peer is refused, and that assignment stays.
func TestLiterals(t *testing.T) {
	b := newBench(t)
	b.options.Pools.RemapPools = setApart
	b.node("n1", "192.0.2.1", true)
	b.service(0, corev1.ServiceTypeNodePort)
	stop := b.run()
	key := byte(0)
	reports := func(name, pods, gateway string) *peer {
		t.Helper()
		p := b.peer(name)
		p.outgoing(discoveryv1alpha1.StatusEstablished)
		key++
		p.copy = p.claims(pods, fmt.Sprintf("10.8%d.0.0/16", key), key)
		p.copy.Spec.EndpointIP, p.copy.Spec.Lanes[0].Carriers[0].Addresses[0] = gateway, gateway
		p.sign(&p.copy.Spec)
		b.Make(p.copy)
		p.answers("None", "None")
		return p
	}
	remapped := func(p *peer) {
		t.Helper()
		p.decided(netv1alpha1.ReasonAgreed, "")
		if nat := p.copy.Status.PodCIDRNAT; nat == netv1alpha1.NotRemapped {
			t.Errorf("%s is not remapped from %s", p.id.ClusterName, p.copy.Spec.PodCIDR)
		}
	}
	server := reports("server", "10.60.0.0/16", "203.0.113.1")
	b.Until("the network of the API server is remapped", func() bool {
		b.serveAt("10.60.0.5")
		b.Read(server.copy)
		return server.copy.Status.Processed && server.copy.Status.PodCIDRNAT != netv1alpha1.NotRemapped
	})

	lender := reports("lender", "10.62.0.0/16", "10.61.3.4")
	lender.seen("None", "None")
	lender.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	remapped(reports("thief", "10.61.0.0/16", "203.0.113.2"))

	own := reports("own", "10.63.0.0/16", "10.63.0.9")
	remapped(own)
	own.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")

	b.Edit(lender.fc, func() { lender.fc.Spec.ForeignAuthURL = "https://10.64.0.1:8443" })
	remapped(reports("listener", "10.64.0.0/16", "203.0.113.3"))

	identity := remote.Identity{
		Namespace: "liqo-tenant-rome", APIServerURL: "https://10.65.0.1:6443", Token: "a.b.c", RenewAt: time.Now(), ExpiresAt: time.Now(),
	}
	if _, err := remote.ParseIdentity(identity.Data()); err != nil {
		t.Fatalf("this identity shows nothing: %v", err)
	}
	b.Make(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: lender.id.TenantNamespace(), Name: remote.SecretName(lender.id.ClusterID)},
		Data:       identity.Data(),
	})
	remapped(reports("liar", "10.65.0.0/16", "203.0.113.4"))

	// The other way round: an assigned prefix stays, and an address in it is refused.
	victim := reports("victim", "10.66.0.0/16", "203.0.113.5")
	victim.seen("None", "None")
	victim.connected(netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "")
	for _, address := range []string{"10.66.3.4", "10.62.3.4", "10.0.3.4"} { // the victim's, its own as it is seen, our external network's
		lender.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].Carriers[0].Addresses[0] = address })
		lender.decided(netv1alpha1.ReasonLaneInvalid, address)
	}
	lender.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].Carriers[0].Addresses[0] = "10.67.0.5" })
	b.Until("our API server is no gateway of a peer", func() bool {
		b.serveAt("10.67.0.5")
		b.Read(lender.copy)
		condition := meta.FindStatusCondition(lender.copy.Status.Conditions, netv1alpha1.ConditionReady)
		return condition.Reason == netv1alpha1.ReasonLaneInvalid && strings.Contains(condition.Message, "10.67.0.5")
	})
	lender.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].Carriers[0].Addresses[0] = "10.61.3.5" })
	lender.seen("None", "None")
	// The address in a URL, which no check refuses, does not change the assignment either, nor does a restart.
	b.Edit(lender.fc, func() { lender.fc.Spec.ForeignAuthURL = "https://10.66.0.1:8443" })
	stop()
	b.run()
	victim.amend(func(to *netv1alpha1.NetworkConfigSpec) { to.Lanes[0].Carriers[0].Port = 5999 })
	victim.seen("None", "None")
	own.seen(own.copy.Status.PodCIDRNAT, own.copy.Status.ExternalCIDRNAT)
	b.Until("the tunnel follows", func() bool { b.Read(victim.tunnel); return victim.tunnel.Spec.Lanes[0].Carriers[0].Port == 5999 })
	if got := victim.tunnel.Spec.RemoteNATPodCIDR; got != netv1alpha1.NotRemapped {
		t.Errorf("the victim's network became %s", got)
	}
}

// serveAt sets an address of the API server, which restores its real one every few seconds.
func (b *bench) serveAt(address string) {
	b.T.Helper()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: gateways.APIServerSlice}}
	there := b.there(slice)
	if there && len(slice.Endpoints) == 1 && slices.Contains(slice.Endpoints[0].Addresses, address) {
		return
	}
	slice.AddressType, slice.Endpoints = discoveryv1.AddressTypeIPv4, []discoveryv1.Endpoint{{Addresses: []string{address}}}
	write := func() error { return b.Create(b.T.Context(), slice) }
	if there {
		write = func() error { return b.Update(b.T.Context(), slice) }
	}
	if err := write(); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		b.Must(err)
	}
}
