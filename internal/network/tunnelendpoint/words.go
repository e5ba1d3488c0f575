// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/claim"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/networks"
	"liqo.io/liqo/internal/network/pools"
)

// judgeNetworks returns why a claim is refused that has no assignments yet: its networks are too large, or are not those in use, and no administrator agreed to
// them. A peer that could change them would move from one host of ours to the next, and one that moves often would interrupt its own pods here.
func judgeNetworks(w pools.Words, s *scope, pools *ipam.Pools, inUse *netv1alpha1.TunnelEndpoint) *claim.Refusal {
	var share []netip.Prefix
	for _, network := range []netip.Prefix{s.claim.Pods, s.claim.External} {
		if w.Of(s.Namespace, network) == "" {
			share = append(share, network)
		}
	}
	if err := pools.CheckShare(share); err != nil {
		return claim.Refuse(
			netv1alpha1.ReasonNetworkTooLarge,
			"%v; if it has that many, an administrator of the receiving cluster lists the networks in spec.network.podCIDRs of ForeignCluster %s",
			err, s.FC.Name,
		)
	}
	if inUse == nil || inUse.DeletionTimestamp != nil {
		return nil
	}
	for _, one := range []struct {
		what string
		is   netv1alpha1.CIDR
		now  netip.Prefix
	}{{"podCIDR", inUse.Spec.RemotePodCIDR, s.claim.Pods}, {"externalCIDR", inUse.Spec.RemoteExternalCIDR, s.claim.External}} {
		if string(one.is) != one.now.String() && !w.AgreesTo(s.Namespace, one.now) {
			return claim.Refuse(netv1alpha1.ReasonNetworkChanged,
				"%s is now %s, and %s is in use; an administrator of the receiving cluster agrees by listing %[2]s in spec.network.acceptedCIDRs of ForeignCluster %[4]s",
				one.what, one.now, one.is, s.FC.Name)
		}
	}
	return nil
}

// useOf states under which networks a peer is reached here, and by whose word one is used as it is.
func useOf(w pools.Words, namespace string, spec *netv1alpha1.TunnelEndpointSpec, awaits awaits) string {
	text := fmt.Sprintf(
		"the peer's pods are reached as %s, its other addresses as %s", networks.Seen(spec.RemotePodCIDR, spec.RemoteNATPodCIDR),
		networks.Seen(spec.RemoteExternalCIDR, spec.RemoteNATExternalCIDR),
	)
	for _, one := range networksOf(spec) {
		word := w.Of(namespace, one.own)
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
		here, err2 := netip.ParsePrefix(networks.Seen(one.own, one.nat))
		if err == nil && err2 == nil {
			all = append(all, mapped{one.what, own, here})
		}
	}
	return all
}

// recordUse records an event at the ForeignCluster when a network begins to be used as it is, and when it is not any more.
func (r *reconciler) recordUse(s *scope) {
	word := r.Pools.WordsFor(&s.Tenant)
	was := map[netip.Prefix]bool{}
	if s.tunnel != nil {
		for _, one := range networksOf(&s.tunnel.Spec) {
			was[one.own] = one.own == one.here
		}
	}
	var kept, moved []string // one event of each kind: the recorder drops the text of a second one
	for _, one := range []mapped{{"pods", s.claim.Pods, s.agreed.pods}, {"other addresses", s.claim.External, s.agreed.external}} {
		switch by := word.Of(s.Namespace, one.own); {
		case one.own == one.here && !was[one.own] && by != "":
			kept = append(kept, fmt.Sprintf("%s as %s, by %s", one.what, one.own, by))
		case one.own != one.here && was[one.own]:
			moved = append(moved, fmt.Sprintf("%s as %s, no longer as %s", one.what, one.here, one.own))
		}
	}
	if len(kept) > 0 {
		r.events.Eventf(s.FC, nil, corev1.EventTypeNormal, netv1alpha1.ReasonNetworkUnmapped, "AgreeNetwork",
			"cluster %s is reached at the addresses that it announces: %s", s.Peer.ClusterName, strings.Join(kept, "; "))
	}
	if len(moved) > 0 {
		r.events.Eventf(s.FC, nil, corev1.EventTypeWarning, netv1alpha1.ReasonNetworkRemapped, "AgreeNetwork",
			"cluster %s is reached at other addresses than it announces: %s; to use those that it announces, list its networks in spec.network.podCIDRs",
			s.Peer.ClusterName, strings.Join(moved, "; "))
	}
}

// inUse returns the tunnel of a tenant namespace.
func inUse(all *pools.Records, namespace string) *netv1alpha1.TunnelEndpoint {
	if i := slices.IndexFunc(all.Tunnels, func(t netv1alpha1.TunnelEndpoint) bool { return t.Namespace == namespace }); i >= 0 {
		return &all.Tunnels[i]
	}
	return nil
}
