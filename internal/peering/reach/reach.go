// SPDX-License-Identifier: Apache-2.0

// Package reach decides by which way another cluster is reached: directly, through the tunnel, by its invitation, or not yet. For is the one place
// where that is decided, for all that ask for an identity there or renew it. It must not know how a way is used. TestFor holds every combination of
// what it depends on.
package reach

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// Kind is a kind of way.
type Kind string

// The kinds of ways.
const (
	// Direct: at the published address, perhaps through a proxy that an administrator has chosen.
	Direct Kind = "direct"
	// Inside: through the tunnel, and the proxy of the other cluster.
	Inside Kind = "through the tunnel"
	// Invited: by the invitation of a provider, until its proxy in the tunnel is known.
	Invited Kind = "invited"
	// Wait: through the tunnel, and that is not possible yet.
	Wait Kind = "wait"
)

// Address is where the authentication service of another cluster is asked, and the proxy through which; both as in the spec of a ForeignCluster.
type Address struct{ AuthURL, ProxyURL string }

// Seen is all that the way to a cluster depends on.
type Seen struct {
	FC *discoveryv1alpha1.ForeignCluster
	// Invitation is the URL of the proxy of the provider's invitation; empty if it has not invited this cluster.
	Invitation string
	// Copies are the requests of the other cluster, which offer addresses; Request is ours, whose answer does. It may be nil.
	Copies  []sharingv1alpha1.ResourceSlice
	Request *sharingv1alpha1.ResourceSlice
	// Tunnel to the other cluster; nil if there is none.
	Tunnel *netv1alpha1.TunnelEndpoint
	// Outgoing: this cluster uses the other one.
	Outgoing bool
	// Answers: its API server answers. Unreachable: this cluster uses it, and its authentication service did not answer last, or its API server has been silent
	// for long.
	Answers, Unreachable bool
}

// Plan is the way to a cluster.
type Plan struct {
	Kind Kind
	// Why is what a way waits for, for people.
	Why string
	// Spec is what the ForeignCluster is to have; what works stays.
	Spec Address
	// Proxy is the URL of the proxy through which the cluster is reached; empty if through none.
	Proxy string
	// Second is the way through the tunnel to the authentication service of a provider that is usually reached directly. NoSecond is why there is none.
	Second   Address
	NoSecond string
}

// For decides.
func For(seen Seen) Plan {
	fc := seen.FC
	plan := Plan{Spec: Address{fc.Spec.ForeignAuthURL, fc.Spec.ForeignProxyURL}}
	if fc.DeletionTimestamp == nil {
		plan.Spec = answered(offered(plan.Spec, &seen), &seen)
	}
	plan.Proxy = plan.Spec.ProxyURL
	inside := fc.InBand() || plan.Spec.AuthURL == discoveryv1alpha1.AuthURLInside
	switch {
	case seen.Invitation != "" && plan.Spec.ProxyURL == "":
		plan.Kind, plan.Proxy = Invited, seen.Invitation
	case !inside:
		plan.Kind = Direct
	case plan.Spec.ProxyURL == "" || plan.Spec.AuthURL == "":
		plan.Kind, plan.Why = Wait, "the address of the remote cluster's proxy is not known; `liqoctl peer in-band` sets it"
	case !Usable(seen.Tunnel):
		plan.Kind, plan.Why = Wait, "the tunnel to the remote cluster is not up, and everything goes through it"
	case !leadsInside(plan.Spec.ProxyURL, seen.Tunnel):
		plan.Kind, plan.Why = Wait, fmt.Sprintf("spec.foreignProxyUrl is not http://HOST:%d in the network %s of the remote cluster, so nothing is sent there; "+
			"`liqoctl peer in-band` sets it", discoveryv1alpha1.ProxyPort, external(seen.Tunnel))
	default:
		plan.Kind = Inside
	}
	plan.Second, plan.NoSecond = second(inside, &seen)
	return plan
}

// offered is the address of a consumer that registered, after what its requests offer: directly as long as that works, else through the tunnel, which
// has no way back. A proxy that is not in the network of that cluster does not count, and what works stays: each change costs this cluster requests,
// and the other one may offer another proxy at any moment. An administrator who peers with that cluster out-of-band sets another address, and makes
// the object theirs.
func offered(now Address, seen *Seen) Address {
	if seen.FC.Labels[labels.DiscoveryType] != labels.DiscoveryIncoming || len(seen.Copies) == 0 {
		return now
	}
	offer := offer(seen.Copies)
	inside := now.AuthURL == discoveryv1alpha1.AuthURLInside
	next := Address{AuthURL: offer.AuthURL}
	if !inside {
		next.ProxyURL = now.ProxyURL
	}
	switch {
	case inside && offer.ProxyURL != "" && (seen.Tunnel == nil || !seen.Unreachable && leadsInside(now.ProxyURL, seen.Tunnel)):
		return now // without a tunnel, it cannot be checked
	case seen.Tunnel == nil || !leadsInside(offer.ProxyURL, seen.Tunnel):
	case inside, offer.AuthURL == "", offer.AuthURL == now.AuthURL && seen.Unreachable:
		next = Address{discoveryv1alpha1.AuthURLInside, offer.ProxyURL}
	}
	if next.AuthURL == "" && seen.Outgoing {
		return now // while we use that cluster, its last URL may still work
	}
	return next
}

// offer is what a consumer offers; empty fields if it offers nothing, or nothing that is valid.
func offer(requests []sharingv1alpha1.ResourceSlice) (offer Address) {
	for i := range requests {
		spec := &requests[i].Spec
		if offer.AuthURL == "" && spec.AuthURL != discoveryv1alpha1.AuthURLInside && discoveryv1alpha1.ValidAuthURL(spec.AuthURL) {
			offer.AuthURL = spec.AuthURL
		}
		if offer.ProxyURL == "" {
			offer.ProxyURL = spec.ProxyURL
		}
	}
	return offer
}

// answered takes over the URL of the proxy of an in-band provider, which answers our request, once the tunnel to it is up. What works stays.
func answered(now Address, seen *Seen) Address {
	if !seen.FC.InBand() || seen.Request == nil || !Usable(seen.Tunnel) || !leadsInside(seen.Request.Status.ProxyURL, seen.Tunnel) {
		return now
	}
	if now.ProxyURL != "" && (seen.Answers || !seen.Unreachable) {
		return now
	}
	return Address{now.AuthURL, seen.Request.Status.ProxyURL}
}

// second is the second way to a provider. The provider offers a URL, and this cluster has chosen the network in which it must be.
func second(inside bool, seen *Seen) (second Address, why string) {
	offered := ""
	if seen.Request != nil {
		offered = seen.Request.Status.ProxyURL
	}
	switch {
	case inside:
		return Address{}, "the tunnel is the first way already"
	case seen.FC.Spec.ClusterKey == "":
		return Address{}, "no key of the provider is pinned"
	case offered == "":
		return Address{}, "the provider offers none"
	case !Usable(seen.Tunnel):
		return Address{}, "the tunnel is not up"
	case !leadsInside(offered, seen.Tunnel):
		return Address{}, "what the provider offers does not lead into its network " + external(seen.Tunnel)
	}
	return Address{discoveryv1alpha1.AuthURLInside, offered}, ""
}

// Usable reports whether a tunnel carries packets.
func Usable(tunnel *netv1alpha1.TunnelEndpoint) bool {
	return tunnel != nil && meta.IsStatusConditionTrue(tunnel.Status.Conditions, netv1alpha1.ConditionUsable)
}

// leadsInside reports whether the URL of a proxy leads to the external network of a peer, and so through the tunnel. The peer chooses the URL: it must not
// have this cluster send anything to another host.
func leadsInside(text string, tunnel *netv1alpha1.TunnelEndpoint) bool {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme != "http" || parsed.Port() != strconv.Itoa(discoveryv1alpha1.ProxyPort) || parsed.Path != "" {
		return false
	}
	address, err := netip.ParseAddr(parsed.Hostname())
	if err != nil {
		return false
	}
	network, err := netip.ParsePrefix(external(tunnel))
	return err == nil && network.Contains(address)
}

// external is the network under which this cluster reaches the external network of a peer.
func external(tunnel *netv1alpha1.TunnelEndpoint) string {
	if nat := tunnel.Spec.RemoteNATExternalCIDR; nat != "" && nat != netv1alpha1.NotRemapped {
		return nat
	}
	return string(tunnel.Spec.RemoteExternalCIDR)
}
