// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/finalizer"
)

// finish deletes all remote namespaces of the consumer, and releases the map if it is being deleted. Kubernetes deletes the contents.
func (r *reconciler) finish(ctx context.Context, p mapOwner, namespaceMap *vkv1alpha1.NamespaceMap) error {
	all, err := r.remoteNamespacesOf(ctx, r.live, p)
	if err != nil {
		return err
	}
	for i := range all {
		if err := r.end(ctx, p, &all[i]); err != nil {
			return err
		}
	}
	if namespaceMap.DeletionTimestamp == nil {
		return nil
	}
	return r.release(ctx, namespaceMap)
}

// forget deletes the remote namespaces of a consumer without a map, whose finalizer was removed by hand.
func (r *reconciler) forget(ctx context.Context, p mapOwner) error {
	all, err := r.remoteNamespacesOf(ctx, r.client, p)
	if err != nil || len(all) == 0 {
		return err
	}
	if live, err := r.maps(ctx, r.live, p.tenant); err != nil || len(live) > 0 {
		return err
	}
	for i := range all {
		if err := r.end(ctx, p, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// end deletes a remote namespace, and limits what its pods may still do if the consumer may not use this cluster. That comes first, as the rights of this
// controller in the namespace end with it.
func (r *reconciler) end(ctx context.Context, p mapOwner, namespace *corev1.Namespace) error {
	if p.ended {
		if err := r.shortenGrace(ctx, namespace); err != nil {
			return err
		}
	}
	return r.delete(ctx, p, namespace)
}

// orphans deletes the remote namespaces of a tenant that is gone with its map.
func (r *reconciler) orphans(ctx context.Context, tenant string) error {
	var all corev1.NamespaceList
	if err := r.client.List(ctx, &all, client.HasLabels{labels.RemoteClusterID}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list remote namespaces: %w", err)
	}
	asked := false
	for i := range all.Items {
		namespace := &all.Items[i]
		p := mapOwner{consumer: namespace.Labels[labels.RemoteClusterID], tenant: tenant, ended: true}
		if !p.keeps(namespace) {
			continue
		}
		if !asked {
			if err := r.live.Get(ctx, client.ObjectKey{Name: tenant}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
				return err // it exists, and its event follows
			}
			asked = true
		}
		if err := r.end(ctx, p, namespace); err != nil {
			return err
		}
	}
	return nil
}

// lastSeconds is the longest grace period of pods whose cluster is no longer a peer.
const lastSeconds = 120

// shortenGrace limits the grace period of the pods of a namespace that ends to lastSeconds: the former peer chose it, and may have chosen years.
func (r *reconciler) shortenGrace(ctx context.Context, namespace *corev1.Namespace) error {
	var all corev1.PodList
	// The cache does not keep grace periods.
	if err := r.live.List(ctx, &all, client.InNamespace(namespace.Name), client.MatchingLabels{labels.ManagedBy: labels.ManagedByShadowPod}); err != nil {
		return fmt.Errorf("list pods in %s: %w", namespace.Name, err)
	}
	for i := range all.Items {
		pod := &all.Items[i]
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		switch {
		case pod.DeletionGracePeriodSeconds != nil:
			grace = *pod.DeletionGracePeriodSeconds
		case pod.Spec.TerminationGracePeriodSeconds != nil:
			grace = *pod.Spec.TerminationGracePeriodSeconds
		}
		if grace <= lastSeconds {
			continue // short enough
		}
		err := r.client.Delete(ctx, pod, client.GracePeriodSeconds(lastSeconds), client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

func (r *reconciler) release(ctx context.Context, namespaceMap *vkv1alpha1.NamespaceMap) error {
	_, err := finalizer.Patch(ctx, r.client, namespaceMap, labels.FinalizerNamespaceMap, controllerutil.RemoveFinalizer)
	return err
}

// others returns the unique names of all consumers except that of tenant.
func (r *reconciler) others(ctx context.Context, tenant string) (names []string, err error) {
	var all corev1.NamespaceList
	if err := r.client.List(ctx, &all, client.MatchingLabels{labels.TenantNamespace: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list tenant namespaces: %w", err)
	}
	for i := range all.Items {
		if name, ok := strings.CutPrefix(all.Items[i].Name, tenantPrefix); ok && all.Items[i].Name != tenant && name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// everyTenant returns the tenants that may wait for something.
func (r *reconciler) everyTenant(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	var all vkv1alpha1.NamespaceMapList
	if err := r.client.List(ctx, &all, client.MatchingLabels{labels.Replicated: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "change of a policy not followed")
	}
	for i := range all.Items {
		requests = append(requests, tenantRequest(all.Items[i].Namespace))
	}
	return requests
}

func (r *reconciler) delete(ctx context.Context, p mapOwner, namespace *corev1.Namespace) error {
	if namespace.DeletionTimestamp != nil {
		return nil
	}
	if has, err := r.holdsData(ctx, namespace.Name); err != nil || has {
		if err != nil {
			return err
		}
		return r.keep(ctx, p, namespace)
	}
	log.FromContext(ctx).Info("remote namespace deleted", "namespace", namespace.Name, "clusterID", p.consumer)
	r.own.Forget(client.ObjectKey{Namespace: namespace.Name, Name: p.tenant})
	r.own.Forget(client.ObjectKey{Namespace: namespace.Name, Name: managerAccount})
	r.own.Forget(client.ObjectKey{Namespace: namespace.Name, Name: boundsName})
	err := r.client.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete namespace %s: %w", namespace.Name, err)
	}
	return nil
}

// maps returns the maps of the consumer. The first, which is the oldest, counts.
func (r *reconciler) maps(ctx context.Context, reader client.Reader, tenant string) ([]vkv1alpha1.NamespaceMap, error) {
	var all vkv1alpha1.NamespaceMapList
	if err := reader.List(ctx, &all, client.InNamespace(tenant), client.MatchingLabels{labels.Replicated: "true"}); err != nil {
		return nil, fmt.Errorf("list namespace maps in %s: %w", tenant, err)
	}
	slices.SortFunc(all.Items, func(a, b vkv1alpha1.NamespaceMap) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all.Items, nil
}
