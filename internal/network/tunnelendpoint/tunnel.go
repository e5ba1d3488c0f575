// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"context"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/log"

	netapply "liqo.io/liqo/apis/applyconfiguration/net/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/endpoint"
	"liqo.io/liqo/internal/network/networks"
	"liqo.io/liqo/internal/network/trust"
)

// ensureTunnel creates the tunnel as soon as both sides have answered, and leaves it unchanged while the peer's claim is refused.
func (r *reconciler) ensureTunnel(ctx context.Context, s *scope) error {
	if !present(s.ours) || !present(s.theirs) || s.refused != nil || s.unread || !s.ours.Status.Processed {
		return nil
	}
	pods, external, err := trust.AnswerOf(r.Local.ClusterID, &s.Tenant, s.ours)
	if err != nil {
		return nil // the condition Published of our NetworkConfig reports it
	}
	shown := r.steady.answer(s, agreement{pods, external}, r.Now())
	own := map[string]string{labels.TunnelCluster: s.Peer.ClusterID, labels.AppPartOf: labels.PartOf}
	if s.FC.Inside() {
		own[labels.TunnelInBand] = "true"
	}
	if leadsToOurPods(s, shown.pods) {
		own[labels.TunnelShown] = "true"
	}
	if token := s.FC.Labels[labels.Invitation]; token != "" {
		own[labels.Invitation] = token
	}
	intent := netapply.TunnelEndpoint(s.Peer.UniqueName(), s.Namespace).
		WithLabels(own).
		WithSpec(tunnelSpec(s, shown).WithBackendConfig(previousKeys(s.tunnel, s.claim.Lanes, r.Now())))
	r.recordUse(s)
	if s.tunnel == nil {
		log.FromContext(ctx).Info("network agreed", "clusterID", s.Peer.ClusterID, "pods", s.agreed.pods, "external", s.agreed.external)
		return r.own.ApplyTo(ctx, intent, nil)
	}
	return r.own.ApplyTo(ctx, intent, s.tunnel)
}

func tunnelSpec(s *scope, shown agreement) *netapply.TunnelEndpointSpecApplyConfiguration {
	row := netapply.TunnelNetworks().
		WithLocalPodCIDR(s.ours.Spec.PodCIDR).WithLocalNATPodCIDR(networks.NATOf(s.ours.Spec.PodCIDR, shown.pods)).
		WithLocalExternalCIDR(s.ours.Spec.ExternalCIDR).WithLocalNATExternalCIDR(networks.NATOf(s.ours.Spec.ExternalCIDR, shown.external)).
		WithRemotePodCIDR(netv1alpha1.CIDR(s.claim.Pods.String())).WithRemoteNATPodCIDR(networks.Remap(s.claim.Pods, s.agreed.pods)).
		WithRemoteExternalCIDR(netv1alpha1.CIDR(s.claim.External.String())).WithRemoteNATExternalCIDR(networks.Remap(s.claim.External, s.agreed.external))
	spec := netapply.TunnelEndpointSpec().WithNetworks(row).
		WithClusterIdentity(netapply.ClusterIdentity().WithClusterID(s.Peer.ClusterID).WithClusterName(s.Peer.ClusterName)).
		WithLocalPodCIDR(*row.LocalPodCIDR).WithLocalNATPodCIDR(*row.LocalNATPodCIDR).WithLocalExternalCIDR(*row.LocalExternalCIDR).
		WithLocalNATExternalCIDR(*row.LocalNATExternalCIDR).
		WithRemotePodCIDR(*row.RemotePodCIDR).WithRemoteNATPodCIDR(*row.RemoteNATPodCIDR).WithRemoteExternalCIDR(*row.RemoteExternalCIDR).
		WithRemoteNATExternalCIDR(*row.RemoteNATExternalCIDR).
		WithEndpointIP("").WithBackendType(endpoint.Backend).WithPeerVersion(s.theirs.Spec.Version)
	if len(s.claim.Lanes) == 0 {
		spec.WithBackendConfig(map[string]string{"publicKey": ""}) // the field is required
	}
	for i := range s.claim.Lanes {
		lane := &s.claim.Lanes[i]
		spec.WithLanes(endpoint.ApplyLane(*lane))
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
