// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/reasons"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/trust"
)

// replaceKeys pins the new keys of a peer that has proven that it replaced its keys (`liqoctl rotate identity` there). The authentication service checked the
// proofs, and they are checked again, because it answers unauthenticated clients and must not be able to change a pin. It reports whether the pin has changed.
func (r *reconciler) replaceKeys(ctx context.Context, fc *discoveryv1alpha1.ForeignCluster, object *corev1.ConfigMap, pin *auth.Pin) (replaced bool, _ error) {
	var stored corev1.ConfigMap
	at := client.ObjectKey{Namespace: r.options.Namespace, Name: auth.ReplacementName(pin.Cluster.ClusterID)}
	if err := r.watched.Get(ctx, at, &stored); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	by, err := auth.ParseReplacement(&stored)
	old, next := clusterkey.Fingerprint(pin.ClusterKey), clusterkey.Fingerprint(by.ClusterKey)
	problem := ""
	switch {
	case err != nil:
		problem = err.Error()
	case by.Done(*pin): // the step after it failed
	case !by.ProvenTo(r.options.Local.ClusterID, *pin):
		problem = "its statement is not signed with the keys that this cluster knows"
	case fc.Spec.ClusterKey != "" && fc.Spec.ClusterKey != old && fc.Spec.ClusterKey != next:
		problem = fmt.Sprintf("this cluster knows it, as a provider, by a third key, with the fingerprint %s", fc.Spec.ClusterKey)
	default:
		if err := r.pinReplacement(ctx, fc, object, by); err != nil {
			return false, err
		}
		replaced = true
		trust.Normal(reasons.PeerKeyReplaced, fmt.Sprintf("cluster %s (%s) has proven that its key with the fingerprint %s replaces the one with %s",
			pin.Cluster.ClusterName, pin.Cluster.ClusterID, next, old)).Send(r.recorder, fc, "ReplaceKey")
	}
	if problem != "" {
		trust.Warning(reasons.PeerKeyNotReplaced, fmt.Sprintf("cluster %s (%s) asked to replace its key, and keeps the one with the fingerprint %s: %s",
			pin.Cluster.ClusterName, pin.Cluster.ClusterID, old, problem)).Send(r.recorder, fc, "ReplaceKey")
		log.FromContext(ctx).Info("key of a peer not replaced", "clusterID", pin.Cluster.ClusterID, "reason", problem)
	}
	return replaced, r.dropReplacement(ctx, pin.Cluster.ClusterID)
}

// dropReplacement deletes the request of a peer to replace its keys, if there is one.
func (r *reconciler) dropReplacement(ctx context.Context, clusterID string) error {
	var stored corev1.ConfigMap
	at := client.ObjectKey{Namespace: r.options.Namespace, Name: auth.ReplacementName(clusterID)}
	if err := r.watched.Get(ctx, at, &stored); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := r.client.Delete(ctx, &stored, client.Preconditions{UID: &stored.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the request of %s to replace its keys: %w", clusterID, err)
	}
	return nil
}

// pinReplacement pins new keys: first where this cluster uses the peer, last where the authentication service waits.
func (r *reconciler) pinReplacement(ctx context.Context, fc *discoveryv1alpha1.ForeignCluster, object *corev1.ConfigMap, by auth.Replacement) error {
	if next := clusterkey.Fingerprint(by.ClusterKey); fc.Spec.ClusterKey != next {
		if err := r.setClusterKey(ctx, fc, next); err != nil {
			return err
		}
	}
	before := object.DeepCopy()
	by.Into(object)
	if err := r.client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("pin the new keys of %s: %w", by.Consumer, err)
	}
	log.FromContext(ctx).Info("key of a peer replaced", "clusterID", by.Consumer, "fingerprint", clusterkey.Fingerprint(by.ClusterKey))
	return nil
}
