// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// finish deletes all twins and lets the map go: Kubernetes takes the rest away by itself.
func (r *twinReconciler) finish(ctx context.Context, p place, wish *vkv1alpha1.NamespaceMap) error {
	all, err := r.twinsOf(ctx, r.live, p)
	if err != nil {
		return err
	}
	for i := range all {
		if err := r.delete(ctx, p, &all[i]); err != nil {
			return err
		}
	}
	if wish.DeletionTimestamp == nil {
		return nil
	}
	return r.release(ctx, wish)
}

// forget deletes the twins of a consumer without a map: its finalizer was taken away by hand.
func (r *twinReconciler) forget(ctx context.Context, p place) error {
	all, err := r.twinsOf(ctx, r.client, p)
	if err != nil || len(all) == 0 {
		return err
	}
	if live, err := r.maps(ctx, r.live, p.tenant); err != nil || len(live) > 0 {
		return err
	}
	for i := range all {
		if err := r.delete(ctx, p, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// orphans deletes the twins of a tenant that is gone, with its map.
func (r *twinReconciler) orphans(ctx context.Context, tenant string) error {
	var all corev1.NamespaceList
	if err := r.client.List(ctx, &all, client.HasLabels{labels.RemoteClusterID}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list twins: %w", err)
	}
	asked := false
	for i := range all.Items {
		one := &all.Items[i]
		p := place{consumer: one.Labels[labels.RemoteClusterID], tenant: tenant}
		if !p.keeps(one) {
			continue
		}
		if !asked {
			if err := r.live.Get(ctx, client.ObjectKey{Name: tenant}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
				return err // it is there, and its event brings us back
			}
			asked = true
		}
		if err := r.delete(ctx, p, one); err != nil {
			return err
		}
		if err := r.hurry(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// lastSeconds is how long pods may take to end whose cluster is no peer any more.
const lastSeconds = 120

// hurry ends the pods of a twin that is being deleted within lastSeconds: how long they may take was said by a cluster that may not like to go.
func (r *twinReconciler) hurry(ctx context.Context, twin *corev1.Namespace) error {
	var all corev1.PodList
	// The cache keeps less of pods.
	if err := r.live.List(ctx, &all, client.InNamespace(twin.Name), client.MatchingLabels{labels.ManagedBy: labels.ManagedByShadowPod}); err != nil {
		return fmt.Errorf("list pods in %s: %w", twin.Name, err)
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
			continue // it ends with its namespace
		}
		err := r.client.Delete(ctx, pod, client.GracePeriodSeconds(lastSeconds), client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

func (r *twinReconciler) release(ctx context.Context, wish *vkv1alpha1.NamespaceMap) error {
	_, err := r.patchFinalizer(ctx, wish, controllerutil.RemoveFinalizer)
	return err
}

// others are the unique names of all consumers but one.
func (r *twinReconciler) others(ctx context.Context, tenant string) (names []string, err error) {
	var all corev1.NamespaceList
	if err := r.client.List(ctx, &all, client.MatchingLabels{labels.TenantNamespace: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list tenant namespaces: %w", err)
	}
	for i := range all.Items {
		if name, is := strings.CutPrefix(all.Items[i].Name, tenantPrefix); is && all.Items[i].Name != tenant && name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}
