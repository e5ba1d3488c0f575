// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// Wanted reports whether the slice should have a node. The virtual kubelet applies the same rule.
func Wanted(slice *sharingv1alpha1.ResourceSlice) bool {
	return slice.DeletionTimestamp == nil && slice.Status.Phase != sharingv1alpha1.SliceRefused
}

// Served returns which slice of a tenant namespace has the virtual kubelet. There is one per peer, because its objects are named after the
// peer. The slice that has it keeps it.
func Served(all []sharingv1alpha1.ResourceSlice) *sharingv1alpha1.ResourceSlice {
	if len(all) == 0 {
		return nil
	}
	without := func(slice *sharingv1alpha1.ResourceSlice) int {
		if slices.Contains(slice.Finalizers, labels.FinalizerNode) {
			return 0
		}
		return 1
	}
	first := slices.MinFunc(all, func(a, b sharingv1alpha1.ResourceSlice) int {
		if number, other := without(&a), without(&b); number != other {
			return number - other
		}
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	return &first
}

func NodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// PeerOf returns the provider of a slice, given its ForeignCluster; nil if the slice gets nothing. Without a ForeignCluster, the slice is being deleted,
// or the event of the ForeignCluster triggers another call. A slice in the tenant namespace of another peer gets nothing, because
// that peer may have written it.
func PeerOf(fc *discoveryv1alpha1.ForeignCluster, slice *sharingv1alpha1.ResourceSlice) *discoveryv1alpha1.ClusterIdentity {
	if fc != nil {
		identity := *fc.Spec.ClusterIdentity
		if slice.Namespace != fc.Status.TenantNamespace.Local && slice.Namespace != identity.TenantNamespace() {
			return nil
		}
		return &identity
	}
	if slice.DeletionTimestamp == nil {
		return nil
	}
	return &discoveryv1alpha1.ClusterIdentity{ClusterID: slice.Spec.ProviderClusterID}
}
