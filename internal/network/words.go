// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
)

// UnmappedValue is the Helm value with the networks of peers that are used as they are.
const UnmappedValue = "networkManager.config.unmappedNetworks"

// words are what administrators of this cluster wrote about the networks of peers. A network of a peer is used as it is only by such a word: what the peer
// itself claims must not decide which addresses lead to it.
type words struct {
	// peers are the ForeignClusters by tenant namespace.
	peers map[string]*discoveryv1alpha1.ForeignCluster
	// unmapped are the networks of the value.
	unmapped []netip.Prefix
}

// wordsOf returns them. A namespace of two ForeignClusters has no word.
func (b *poolReader) wordsOf(all *records) words {
	w := words{peers: map[string]*discoveryv1alpha1.ForeignCluster{}, unmapped: b.options.Unmapped}
	for i := range all.fcs {
		fc := &all.fcs[i]
		namespace := fc.Status.TenantNamespace.Local
		if id := fc.Spec.ClusterIdentity; namespace == "" || id == nil || discoveryv1alpha1.OwnerOf(all.fcs, id.ClusterID) != fc {
			continue
		}
		if _, twice := w.peers[namespace]; twice {
			fc = nil
		}
		w.peers[namespace] = fc
	}
	return w
}

// wordsFor returns those about one peer.
func (s *shared) wordsFor(of *tenancy) words {
	return words{peers: map[string]*discoveryv1alpha1.ForeignCluster{of.namespace: of.fc}, unmapped: s.options.Unmapped}
}

// of returns who wrote a network of the peer with this tenant namespace down; empty if no administrator did. A ForeignCluster lists the network itself, so
// that the peer cannot choose among the addresses of a larger one.
func (w words) of(namespace string, network netip.Prefix) string {
	if w.forces(namespace, network) {
		return fmt.Sprintf("spec.network.forcedCIDRs of ForeignCluster %s", w.peers[namespace].Name)
	}
	if fc := w.peers[namespace]; fc != nil && lists(fc.PodCIDRs(), network) {
		return fmt.Sprintf("spec.network.podCIDRs of ForeignCluster %s", fc.Name)
	}
	for _, one := range w.unmapped {
		if one.Bits() <= network.Bits() && one.Overlaps(network) {
			return fmt.Sprintf("value %s, which lists %s", UnmappedValue, one)
		}
	}
	return ""
}

// forces reports whether an administrator wants a network to lead to the peer although nodes reach it without the peer.
func (w words) forces(namespace string, network netip.Prefix) bool {
	fc := w.peers[namespace]
	return fc != nil && fc.Spec.Network != nil && lists(fc.Spec.Network.ForcedCIDRs, network)
}

// about returns the word about a network of the peer.
func (w words) about(namespace string, network netip.Prefix) ipam.Word {
	switch {
	case w.forces(namespace, network):
		return ipam.Forced
	case w.of(namespace, network) != "":
		return ipam.Written
	default:
		return ipam.NoWord
	}
}

// agreesTo reports whether an administrator agreed that the peer has this network.
func (w words) agreesTo(namespace string, network netip.Prefix) bool {
	fc := w.peers[namespace]
	return w.of(namespace, network) != "" || fc != nil && fc.Spec.Network != nil && lists(fc.Spec.Network.AcceptedCIDRs, network)
}

func lists(networks []string, network netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(text string) bool {
		listed, err := netip.ParsePrefix(text)
		return err == nil && listed == network
	})
}

// judge returns why a claim is refused that has no assignments yet: its networks are too large, or are not those in use, and no administrator agreed to
// them. A peer that could change them would move from one host of ours to the next, and one that moves often would interrupt its own pods here.
func (w words) judge(s *tunnelScope, pools *ipam.Pools, inUse *netv1alpha1.TunnelEndpoint) *refusal {
	var share []netip.Prefix
	for _, network := range []netip.Prefix{s.claim.pods, s.claim.external} {
		if w.of(s.namespace, network) == "" {
			share = append(share, network)
		}
	}
	if err := pools.CheckShare(share); err != nil {
		return refuse(netv1alpha1.ReasonNetworkTooLarge, "%v; if it has that many, an administrator of the receiving cluster lists the networks in spec.network.podCIDRs of ForeignCluster %s", err, s.fc.Name)
	}
	if inUse == nil || inUse.DeletionTimestamp != nil {
		return nil
	}
	for _, one := range []struct {
		what string
		is   netv1alpha1.CIDR
		now  netip.Prefix
	}{{"podCIDR", inUse.Spec.RemotePodCIDR, s.claim.pods}, {"externalCIDR", inUse.Spec.RemoteExternalCIDR, s.claim.external}} {
		if string(one.is) != one.now.String() && !w.agreesTo(s.namespace, one.now) {
			return refuse(netv1alpha1.ReasonNetworkChanged, "%s is now %s, and %s is in use; an administrator of the receiving cluster agrees by listing %[2]s in spec.network.acceptedCIDRs of ForeignCluster %[4]s",
				one.what, one.now, one.is, s.fc.Name)
		}
	}
	return nil
}

// use states under which networks a peer is reached here, and by whose word one is used as it is.
func (w words) use(namespace string, spec *netv1alpha1.TunnelEndpointSpec, awaits awaits) string {
	text := fmt.Sprintf("the peer's pods are reached as %s, its other addresses as %s", seen(spec.RemotePodCIDR, spec.RemoteNATPodCIDR), seen(spec.RemoteExternalCIDR, spec.RemoteNATExternalCIDR))
	for _, one := range networksOf(spec) {
		word := w.of(namespace, one.own)
		switch {
		case one.own == one.here && word != "":
			text += fmt.Sprintf("; %s is used as it is, by %s", one.own, word)
		case one.own == one.here:
			text += fmt.Sprintf("; %s is used as it is, because it lies in what is set apart", one.own)
		case word != "" && slices.Contains(awaits.held, one.own):
			text += fmt.Sprintf("; %s is to be used as it is, by %s: %s", one.own, word, awaits.text)
		case word != "":
			text += fmt.Sprintf("; %s is remapped although %s wants it as it is, because it overlaps what this cluster or a node of it uses", one.own, word)
		}
	}
	return text
}

// mapped is a network of a peer, and where it is here.
type mapped struct {
	what      string
	own, here netip.Prefix
}

func networksOf(spec *netv1alpha1.TunnelEndpointSpec) (all []mapped) {
	for _, one := range []struct {
		what string
		own  netv1alpha1.CIDR
		nat  string
	}{{"pods", spec.RemotePodCIDR, spec.RemoteNATPodCIDR}, {"other addresses", spec.RemoteExternalCIDR, spec.RemoteNATExternalCIDR}} {
		own, err := netip.ParsePrefix(string(one.own))
		here, err2 := netip.ParsePrefix(seen(one.own, one.nat))
		if err == nil && err2 == nil {
			all = append(all, mapped{one.what, own, here})
		}
	}
	return all
}

// recordUse records an event at the ForeignCluster when a network begins to be used as it is, and when it is not any more.
func (r *tunnelReconciler) recordUse(s *tunnelScope) {
	word := r.wordsFor(&s.tenancy)
	was := map[netip.Prefix]bool{}
	if s.tunnel != nil {
		for _, one := range networksOf(&s.tunnel.Spec) {
			was[one.own] = one.own == one.here
		}
	}
	var kept, moved []string // one event of each kind: the recorder drops the text of a second one
	for _, one := range []mapped{{"pods", s.claim.pods, s.agreed.pods}, {"other addresses", s.claim.external, s.agreed.external}} {
		switch by := word.of(s.namespace, one.own); {
		case one.own == one.here && !was[one.own] && by != "":
			kept = append(kept, fmt.Sprintf("%s as %s, by %s", one.what, one.own, by))
		case one.own != one.here && was[one.own]:
			moved = append(moved, fmt.Sprintf("%s as %s, no longer as %s", one.what, one.here, one.own))
		}
	}
	if len(kept) > 0 {
		r.events.Eventf(s.fc, nil, corev1.EventTypeNormal, netv1alpha1.ReasonNetworkUnmapped, "AgreeNetwork",
			"cluster %s is reached at the addresses that it announces: %s", s.peer.ClusterName, strings.Join(kept, "; "))
	}
	if len(moved) > 0 {
		r.events.Eventf(s.fc, nil, corev1.EventTypeWarning, netv1alpha1.ReasonNetworkRemapped, "AgreeNetwork",
			"cluster %s is reached at other addresses than it announces: %s; to use those that it announces, list its networks in spec.network.podCIDRs", s.peer.ClusterName, strings.Join(moved, "; "))
	}
}

// inUse returns the tunnel of a tenant namespace.
func inUse(all *records, namespace string) *netv1alpha1.TunnelEndpoint {
	if i := slices.IndexFunc(all.tunnels, func(t netv1alpha1.TunnelEndpoint) bool { return t.Namespace == namespace }); i >= 0 {
		return &all.tunnels[i]
	}
	return nil
}
