// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"

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
	}
	return nil
}

func (r *twinReconciler) release(ctx context.Context, wish *vkv1alpha1.NamespaceMap) error {
	_, err := r.patchFinalizer(ctx, wish, controllerutil.RemoveFinalizer)
	return err
}
