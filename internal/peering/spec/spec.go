// SPDX-License-Identifier: Apache-2.0

// Package spec decides what a ForeignCluster asks for, and whether it can be processed.
package spec

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/peering/conditions"
)

// Check returns why a ForeignCluster whose identity is known cannot be processed, or nil.
func Check(fc *discoveryv1alpha1.ForeignCluster, local discoveryv1alpha1.ClusterIdentity, all []discoveryv1alpha1.ForeignCluster) *conditions.Problem {
	peer := fc.Spec.ClusterIdentity
	if peer.ClusterID == local.ClusterID {
		return conditions.NewProblem(discoveryv1alpha1.ReasonLocalCluster, fmt.Sprintf(
			"cluster ID %s is this cluster's own; delete this ForeignCluster, and use the peer command of another cluster", peer.ClusterID))
	}
	if owner := discoveryv1alpha1.OwnerOf(all, peer.ClusterID); owner != nil && owner.Name != fc.Name {
		return conditions.NewProblem(discoveryv1alpha1.ReasonClusterIDRepetition, fmt.Sprintf(
			"ForeignCluster %s, which is older, stands for the same cluster ID %s; delete one of the two", owner.Name, peer.ClusterID))
	}
	return nil
}

// UnusedSince is when the peer's last request was removed, or when the ForeignCluster was created.
func UnusedSince(fc *discoveryv1alpha1.ForeignCluster) time.Time {
	since := fc.CreationTimestamp.Time
	for _, condition := range fc.Status.PeeringConditions {
		if condition.Type == discoveryv1alpha1.IncomingPeering && condition.LastTransitionTime.After(since) {
			since = condition.LastTransitionTime.Time
		}
	}
	return since
}

// WantsOutgoing reports whether the ForeignCluster asks for resources of the peer. Auto follows the setting for
// discovered clusters.
func WantsOutgoing(fc *discoveryv1alpha1.ForeignCluster, autoJoin bool) bool {
	switch fc.Spec.OutgoingPeeringEnabled {
	case discoveryv1alpha1.PeeringYes:
		return fc.DeletionTimestamp == nil
	case discoveryv1alpha1.PeeringNo:
		return false
	default:
		return fc.DeletionTimestamp == nil && autoJoin && fc.Labels[labels.DiscoveryType] == labels.DiscoveryLAN
	}
}

// NodeName chooses the name of the virtual node: the short one, unless another cluster or a real node has it. A tenant namespace that remained from when the
// cluster had another name decides: policies know from it which node is that of its virtual kubelet.
func NodeName(peer discoveryv1alpha1.ClusterIdentity, namespace string, nodes []corev1.Node, others []sharingv1alpha1.ResourceSlice) string {
	if unique, ok := strings.CutPrefix(namespace, "liqo-tenant-"); ok && unique != peer.UniqueName() {
		return "liqo-" + unique
	}
	name := peer.NodeName()
	for i := range nodes {
		if nodes[i].Name == name && nodes[i].Labels[labels.RemoteClusterID] != peer.ClusterID {
			return "liqo-" + peer.UniqueName()
		}
	}
	for i := range others {
		if others[i].Spec.NodeName == name && others[i].Spec.ProviderClusterID != peer.ClusterID {
			return "liqo-" + peer.UniqueName()
		}
	}
	return name
}

// WithoutTunnelSince is since when an in-band peer has neither used this cluster, which is since, nor had a tunnel.
func WithoutTunnelSince(fc *discoveryv1alpha1.ForeignCluster, since time.Time) time.Time {
	for i := range fc.Status.PeeringConditions {
		if c := &fc.Status.PeeringConditions[i]; c.Type == discoveryv1alpha1.NetworkStatus && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}
