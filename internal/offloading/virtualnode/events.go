// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/offloading/provider"
)

// slicesWhere returns requests for the slices that about selects.
func (r *reconciler) slicesWhere(ctx context.Context, about func(*sharingv1alpha1.ResourceSlice) bool) (requests []reconcile.Request) {
	var all sharingv1alpha1.ResourceSliceList
	if err := r.client.List(ctx, &all, client.MatchingLabels{labels.Replication: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "event not attributed to a slice")
		return nil
	}
	for i := range all.Items {
		if about(&all.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

func (r *reconciler) slicesBeside(ctx context.Context, object client.Object) []reconcile.Request {
	return r.slicesWhere(ctx, func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.Namespace == object.GetNamespace() })
}

// slicesOfPeer maps an object of a virtual kubelet, which carries the peer's ID, to the slices of the peer.
func (r *reconciler) slicesOfPeer(ctx context.Context, object client.Object) []reconcile.Request {
	id := object.GetLabels()[labels.ClusterID]
	if id == "" {
		return nil
	}
	return r.slicesWhere(ctx, func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.Spec.ProviderClusterID == id })
}

func (r *reconciler) slicesOfForeignCluster(ctx context.Context, object client.Object) []reconcile.Request {
	foreign, ok := object.(*discoveryv1alpha1.ForeignCluster)
	if !ok || foreign.Spec.ClusterIdentity == nil {
		return nil
	}
	return r.slicesWhere(ctx, func(slice *sharingv1alpha1.ResourceSlice) bool {
		return slice.Spec.ProviderClusterID == foreign.Spec.ClusterIdentity.ClusterID
	})
}

func (r *reconciler) slicesOfNode(ctx context.Context, object client.Object) []reconcile.Request {
	if object.GetLabels()[labels.Type] != labels.TypeVirtualNode {
		return nil
	}
	return r.slicesWhere(ctx, func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.Spec.NodeName == object.GetName() })
}

// slicesOfPod maps the pod of a virtual kubelet, and a pod that holds up a drain, to their slices.
func (r *reconciler) slicesOfPod(ctx context.Context, object client.Object) []reconcile.Request {
	if object.GetLabels()[labels.ClusterID] != "" {
		return r.slicesOfPeer(ctx, object)
	}
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	return r.slicesWhere(ctx, func(slice *sharingv1alpha1.ResourceSlice) bool {
		return slice.Spec.NodeName == pod.Spec.NodeName && !provider.Wanted(slice)
	})
}

// served returns the name of the slice of the namespace that has the virtual kubelet.
func (r *reconciler) served(ctx context.Context, namespace string) (string, error) {
	var all sharingv1alpha1.ResourceSliceList
	if err := r.client.List(
		ctx, &all, client.InNamespace(namespace), client.MatchingLabels{labels.Replication: "true"}, client.UnsafeDisableDeepCopy,
	); err != nil {
		return "", fmt.Errorf("list resource slices in %s: %w", namespace, err)
	}
	if first := provider.Served(all.Items); first != nil {
		return first.Name, nil
	}
	return "", nil
}
