// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/kinds"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=patch
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=shadowpods,verbs=list;watch

// Values of the annotation labels.KeptForData.
const (
	// keptForPeer: the consumer no longer requests the namespace. It may delete its claims.
	keptForPeer = "not-requested"
	// keptAlone: the consumer is no peer any more, and has no rights here.
	keptAlone = "no-peer"
)

// deletions passes the deletion of claims and ShadowPods: a namespace that is kept for its claims goes with the last one, and is marked without pods.
var deletions = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
}

// claimMetadata is for a watch of claims.
func claimMetadata() *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	return object
}

// holdsData reports whether a namespace has a claim. It reads live: with the namespace, Kubernetes would delete the data.
func (r *reconciler) holdsData(ctx context.Context, namespace string) (bool, error) {
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	if err := r.live.List(ctx, all, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return false, fmt.Errorf("look for claims in %s: %w", namespace, err)
	}
	return len(all.Items) > 0, nil
}

// keep takes everything out of a namespace except its claims; and the rights of the consumer, if it is no peer any more. The namespace is marked once its
// pods are gone.
func (r *reconciler) keep(ctx context.Context, p mapOwner, namespace *corev1.Namespace) error {
	state := keptForPeer
	if p.ended || p.holdsOthersData(namespace) {
		state = keptAlone
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: p.tenant}}
		if err := r.client.Delete(ctx, binding); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete role binding %s/%s: %w", namespace.Name, p.tenant, err)
		}
		r.own.Forget(client.ObjectKeyFromObject(binding))
	}
	if namespace.Annotations[labels.KeptForData] == state {
		return nil
	}
	for _, kind := range kinds.Where(func(kind *kinds.Kind) bool { return !kind.Data }) {
		how := metav1.DeletePropagationBackground
		if kind == kinds.Pod {
			switch held, err := r.allHeld(ctx, namespace.Name); {
			case err != nil:
				return err
			case !held:
				how = metav1.DeletePropagationForeground
			}
		}
		object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: kind.Remote.GroupVersion().String(), Kind: kind.Remote.Kind}}
		err := r.client.DeleteAllOf(ctx, object, client.InNamespace(namespace.Name), client.PropagationPolicy(how))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete what cluster %s has in %s (%s): %w", p.consumer, namespace.Name, kind.Remote.Kind, err)
		}
	}
	var pods vkv1alpha1.ShadowPodList
	if err := r.live.List(ctx, &pods, client.InNamespace(namespace.Name), client.Limit(1)); err != nil {
		return fmt.Errorf("look for pods in %s: %w", namespace.Name, err)
	}
	if len(pods.Items) > 0 {
		return nil // the event of their deletion follows
	}
	log.FromContext(ctx).Info("remote namespace kept, because it holds claims", "namespace", namespace.Name, "clusterID", p.consumer, "state", state)
	return r.markKept(ctx, p, namespace, state)
}

// allHeld reports whether each ShadowPod of a namespace has the finalizer that keeps it until its pod is gone. Those without it are deleted in the foreground
// instead: it keeps them as well, but the garbage collector needs minutes for many. One request deletes them all, in one way.
func (r *reconciler) allHeld(ctx context.Context, namespace string) (bool, error) {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(vkv1alpha1.GroupVersion.WithKind("ShadowPodList"))
	if err := r.live.List(ctx, pods, client.InNamespace(namespace)); err != nil { // a cache may lack one without it
		return false, fmt.Errorf("list shadow pods in %s: %w", namespace, err)
	}
	return !slices.ContainsFunc(pods.Items, func(pod metav1.PartialObjectMetadata) bool {
		return !slices.Contains(pod.Finalizers, labels.FinalizerPodGone)
	}), nil
}

// markKept records for whom a namespace is kept; with an empty state, that it is in use again, for this map.
func (r *reconciler) markKept(ctx context.Context, p mapOwner, namespace *corev1.Namespace, state string) error {
	now := namespace.DeepCopy()
	if now.Annotations == nil {
		now.Annotations = map[string]string{}
	}
	if now.Annotations[labels.KeptForData] = state; state == "" {
		delete(now.Annotations, labels.KeptForData)
	}
	if state == "" {
		now.Annotations[labels.ManagedByNamespaceMap] = p.key()
	}
	if p.fingerprint != "" && (state == "" || namespace.Annotations[labels.OwnerKey] == "") { // of a namespace that is kept, the owner stays on record
		now.Annotations[labels.OwnerKey] = p.fingerprint
	}
	err := r.client.Patch(ctx, now, client.MergeFromWithOptions(namespace, client.MergeFromWithOptimisticLock{}), client.FieldOwner(labels.OwnerRemoteNamespaces))
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("annotate namespace %s: %w", namespace.Name, err)
	}
	return nil
}
