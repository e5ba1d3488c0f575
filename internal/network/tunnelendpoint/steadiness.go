// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/ratelimit"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/networks"
	"liqo.io/liqo/internal/network/pace"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/tunnelstatus"
)

// A peer gets claimBurst readings of a changed claim at once, then one per claimPause: each is answered, recorded, and passed on to gateways and
// nodes. A burst is what a cluster announces while its nodes start one after another.
const (
	claimBurst = 30
	claimPause = 15 * time.Second
)

// steadiness bounds how often what a peer states is used, by tenant namespace. There is one worker, so it needs no lock. It is not stored: after a
// restart, what is in use is in the TunnelEndpoints.
type steadiness struct {
	limiter *ratelimit.Limiter[string]
	// last are the claims that were read last.
	last map[string]reading
	// claimed are the networks that peers claim, answered those under which they show ours.
	claimed, answered map[string]pace.Memory[agreement]
	// mtu is what passed to the peers and back.
	mtu map[string]pace.Memory[int32]
	// reported limits what is written into the status of tunnels.
	reported *ratelimit.Limiter[string]
}

// reading identifies a claim, and for which announcement of ours it was read: a peer that deletes one of the two deletes its tunnel.
type reading struct {
	theirs, ours types.UID
	generation   int64
}

func newSteadiness() *steadiness {
	return &steadiness{
		limiter: ratelimit.New[string](rate.Every(claimPause), claimBurst, 1000),
		last:    map[string]reading{}, claimed: map[string]pace.Memory[agreement]{}, answered: map[string]pace.Memory[agreement]{},
		mtu: map[string]pace.Memory[int32]{}, reported: pace.NewStatusLimiter(),
	}
}

// forget drops what is remembered of a peer without a tunnel. The limiter stays, because the peer decides whether it has one, and so does what was read.
func (y *steadiness) forget(namespace string) {
	delete(y.claimed, namespace)
	delete(y.answered, namespace)
	delete(y.mtu, namespace)
}

// reads reports whether the claim of the peer may be read now: it was before, or the peer has not changed it too often. That ours is published later
// is no change.
func (y *steadiness) reads(s *scope, now time.Time) bool {
	this := reading{theirs: s.theirs.UID, generation: s.theirs.Generation}
	if s.ours != nil {
		this.ours = s.ours.UID
	}
	last, known := y.last[s.Namespace]
	switch {
	case known && last.theirs == this.theirs && last.generation == this.generation && (this.ours == "" || last.ours == "" || this.ours == last.ours):
		this.ours = cmp.Or(this.ours, last.ours)
	case !y.limiter.Allow(s.Namespace, now):
		return false
	}
	y.last[s.Namespace] = this
	return true
}

// claim replaces the networks of the claim by those in use, while they have not stood long enough. The words of administrators are applied to these meanwhile.
func (y *steadiness) claim(s *scope, now time.Time) {
	var used agreement
	if s.tunnel != nil {
		used = agreement{prefixOf(string(s.tunnel.Spec.RemotePodCIDR)), prefixOf(string(s.tunnel.Spec.RemoteExternalCIDR))}
	}
	stated := agreement{s.claim.Pods, s.claim.External}
	use, memory, again := pace.Settle(y.claimed[s.Namespace], used, stated, now)
	y.claimed[s.Namespace], s.held = memory, use != stated
	s.claim.Pods, s.claim.External = use.pods, use.external
	s.requeue(again)
}

// answer returns the networks under which the peer shows ours, as far as its answer has stood long enough. An answer to other networks of ours is a first one.
func (y *steadiness) answer(s *scope, stated agreement, now time.Time) agreement {
	var used agreement
	if s.tunnel != nil && s.tunnel.Spec.LocalPodCIDR == s.ours.Spec.PodCIDR && s.tunnel.Spec.LocalExternalCIDR == s.ours.Spec.ExternalCIDR {
		spec := &s.tunnel.Spec
		used = agreement{prefixOf(networks.Seen(spec.LocalPodCIDR, spec.LocalNATPodCIDR)), prefixOf(networks.Seen(spec.LocalExternalCIDR, spec.LocalNATExternalCIDR))}
	}
	use, memory, again := pace.Settle(y.answered[s.Namespace], used, stated, now)
	y.answered[s.Namespace] = memory
	s.requeue(again)
	return use
}

// text names a peer that changes too often, without what it states: the text must not change as often.
func (y *steadiness) text(namespace string) string {
	if !y.claimed[namespace].Unsteady && !y.answered[namespace].Unsteady {
		return ""
	}
	return "; the peer keeps changing its networks, or those under which it shows the ones of this cluster, so a change counts after it has stood for " +
		pace.Stand.String()
}

// reports reports whether a status may be written now. Whether the peer is connected and usable is never late, and what was agreed has a limit of its own.
func (y *steadiness) reports(namespace string, before, status *netv1alpha1.TunnelEndpointStatus, now time.Time) bool {
	return !tunnelstatus.CanWait(before, status) || y.reported.Allow(namespace, now)
}

func prefixOf(text string) netip.Prefix {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}
	}
	return network
}

// leadsToOurPods reports whether addresses of the network under which a peer shows our pods may lead to these pods: nothing else here is there. It
// depends on the arguments only, and of the pools not on what was assigned to this peer, which is agreed: the pools may be from before that, or from
// after.
func leadsToOurPods(s *scope, shown netip.Prefix) bool {
	// We dial the peer's gateways at these addresses.
	dialled := slices.ContainsFunc(pools.CarrierLiterals("gateway of the peer", s.claim.Lanes), func(use ipam.Use) bool { return use.Network.Overlaps(shown) })
	return !dialled && !s.agreed.pods.Overlaps(shown) && !s.agreed.external.Overlaps(shown) && s.pools.Without(s.Namespace).IsVacant(shown)
}
