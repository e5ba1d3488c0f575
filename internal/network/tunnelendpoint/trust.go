// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryapply "liqo.io/liqo/apis/applyconfiguration/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// recordDistrust records an event at the ForeignCluster when a peer's NetworkConfig is not believed, or its networks are not used, for another reason than
// before.
func (r *reconciler) recordDistrust(s *scope, answer *netv1alpha1.NetworkConfigStatus) {
	if s.refused == nil {
		return
	}
	switch s.refused.Reason {
	case netv1alpha1.ReasonNotSigned, netv1alpha1.ReasonSignatureInvalid, netv1alpha1.ReasonVersionOld,
		netv1alpha1.ReasonNetworkTooLarge, netv1alpha1.ReasonNetworkChanged, netv1alpha1.ReasonNetworksExhausted:
	default:
		return
	}
	before := meta.FindStatusCondition(s.theirs.Status.Conditions, netv1alpha1.ConditionReady)
	now := meta.FindStatusCondition(answer.Conditions, netv1alpha1.ConditionReady)
	if before == nil || before.Reason != now.Reason || before.Message != now.Message {
		r.events.Eventf(s.FC, nil, corev1.EventTypeWarning, now.Reason, "ReadNetworkConfig", "%s", now.Message)
	}
}

// recordVersion keeps the version of the peer's network before the tunnel, which has it, is deleted: an attacker who can delete the peer's NetworkConfig
// must not be able to bring an older one back.
func (r *reconciler) recordVersion(ctx context.Context, s *scope) error {
	if s.FC == nil || s.FC.Status.NetworkVersion >= s.tunnel.Spec.PeerVersion {
		return nil
	}
	intent := discoveryapply.ForeignCluster(s.FC.Name).WithUID(s.FC.UID).
		WithStatus(discoveryapply.ForeignClusterStatus().WithNetworkVersion(s.tunnel.Spec.PeerVersion))
	if err := r.own.ApplyStatusTo(ctx, intent, s.FC); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("record the version of the network of %s: %w", s.Peer.ClusterID, err)
	}
	return nil
}
