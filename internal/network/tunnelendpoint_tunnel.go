// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/log"

	netapply "liqo.io/liqo/apis/applyconfiguration/net/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// ensureTunnel creates the tunnel as soon as both sides have answered, and leaves it unchanged while the peer's claim is refused.
func (r *tunnelReconciler) ensureTunnel(ctx context.Context, s *tunnelScope) error {
	if !present(s.ours) || !present(s.theirs) || s.refused != nil || s.unread || !s.ours.Status.Processed {
		return nil
	}
	pods, external, err := answerOf(r.Local.ClusterID, &s.tenancy, s.ours)
	if err != nil {
		return nil // the condition Published of our NetworkConfig reports it
	}
	shown := r.steady.answer(s, agreement{pods, external}, r.Now())
	own := map[string]string{labels.TunnelCluster: s.peer.ClusterID, labels.AppPartOf: labels.PartOf}
	if s.fc.Inside() {
		own[labels.TunnelInBand] = "true"
	}
	if leadsToOurPods(s, shown.pods) {
		own[labels.TunnelShown] = "true"
	}
	if token := s.fc.Labels[labels.Invitation]; token != "" {
		own[labels.Invitation] = token
	}
	intent := netapply.TunnelEndpoint(s.peer.UniqueName(), s.namespace).
		WithLabels(own).
		WithSpec(tunnelSpec(s, shown).WithBackendConfig(previousKeys(s.tunnel, s.claim.lanes, r.Now())))
	r.recordUse(s)
	if s.tunnel == nil {
		log.FromContext(ctx).Info("network agreed", "clusterID", s.peer.ClusterID, "pods", s.agreed.pods, "external", s.agreed.external)
		return r.own.ApplyTo(ctx, intent, nil)
	}
	return r.own.ApplyTo(ctx, intent, s.tunnel)
}

func tunnelSpec(s *tunnelScope, shown agreement) *netapply.TunnelEndpointSpecApplyConfiguration {
	spec := netapply.TunnelEndpointSpec().
		WithClusterIdentity(netapply.ClusterIdentity().WithClusterID(s.peer.ClusterID).WithClusterName(s.peer.ClusterName)).
		WithLocalPodCIDR(s.ours.Spec.PodCIDR).WithLocalNATPodCIDR(natOf(s.ours.Spec.PodCIDR, shown.pods)).
		WithLocalExternalCIDR(s.ours.Spec.ExternalCIDR).WithLocalNATExternalCIDR(natOf(s.ours.Spec.ExternalCIDR, shown.external)).
		WithRemotePodCIDR(netv1alpha1.CIDR(s.claim.pods.String())).WithRemoteNATPodCIDR(remap(s.claim.pods, s.agreed.pods)).
		WithRemoteExternalCIDR(netv1alpha1.CIDR(s.claim.external.String())).WithRemoteNATExternalCIDR(remap(s.claim.external, s.agreed.external)).
		WithEndpointIP("").WithBackendType(backend).WithPeerVersion(s.theirs.Spec.Version)
	if len(s.claim.lanes) == 0 {
		spec.WithBackendConfig(map[string]string{"publicKey": ""}) // the field is required
	}
	for i := range s.claim.lanes {
		lane := &s.claim.lanes[i]
		spec.WithLanes(laneApply(*lane))
		if i > 0 {
			continue
		}
		config := map[string]string{"publicKey": lane.PublicKey}
		if len(lane.Carriers) > 0 && lane.Carriers[0].Type == netv1alpha1.CarrierUDP {
			spec.WithEndpointIP(lane.Carriers[0].Addresses[0])
			config["port"] = strconv.Itoa(int(lane.Carriers[0].Port))
		}
		spec.WithBackendConfig(config)
	}
	return spec
}
