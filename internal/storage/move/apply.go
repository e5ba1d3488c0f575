// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/move/plan"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=create;delete;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=update
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=create;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-controller-manager-offloaded,verbs=bind
// +kubebuilder:rbac:namespace=liqo-storage,groups="",resources=persistentvolumeclaims,verbs=patch
// +kubebuilder:rbac:namespace=liqo-offloaded,groups="",resources=persistentvolumeclaims;pods;secrets;services,verbs=create;delete
// +kubebuilder:rbac:namespace=liqo-offloaded,groups=networking.k8s.io,resources=networkpolicies,verbs=create;patch;delete

// controllerOptions bound the pause after a failure: pods may be waiting for their volume when an API server is back.
func controllerOptions() ctrl.Options {
	const first, most = 250 * time.Millisecond, 5 * time.Second
	return ctrl.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, most),
	}
}

// do carries out one effect. Each may be repeated.
func (c *controller) do(ctx context.Context, move *v1alpha1.VolumeMove, one plan.Do) error {
	object, is := one.Object.DeepCopyObject().(client.Object)
	if !is {
		return fmt.Errorf("%T is no object of an API server", one.Object)
	}
	switch one.Verb {
	case plan.Create:
		return ignoreExists(c.client.Create(ctx, object, client.FieldOwner(labels.OwnerMove)))
	case plan.Apply:
		return c.apply(ctx, object)
	case plan.Delete:
		return c.remove(ctx, object)
	case plan.Evict:
		return c.evict(ctx, object)
	case plan.Policy:
		volume, is := object.(*corev1.PersistentVolume)
		if !is {
			return fmt.Errorf("%T has no reclaim policy", object)
		}
		change := map[string]any{"spec": map[string]any{"persistentVolumeReclaimPolicy": volume.Spec.PersistentVolumeReclaimPolicy}}
		if remembered := volume.Annotations[labels.ReclaimPolicy]; remembered != "" {
			change["metadata"] = map[string]any{"annotations": map[string]any{labels.ReclaimPolicy: remembered}}
		}
		return c.patch(ctx, object, change)
	case plan.Fence:
		return c.fence(ctx, object)
	case plan.MakeKeys:
		return c.keys(ctx, move)
	case plan.Relabel:
		named := map[string]any{"labels": map[string]any{labels.VirtualClaimName: orNull(object.GetLabels()[labels.VirtualClaimName])}}
		if long := object.GetAnnotations()[labels.VirtualClaimName]; long != "" {
			named["annotations"] = map[string]any{labels.VirtualClaimName: long}
		}
		return c.patch(ctx, object, map[string]any{"metadata": named})
	case plan.Touch:
		err := c.client.Update(ctx, object, client.FieldOwner(labels.OwnerMove))
		if apierrors.IsConflict(err) {
			return nil // a change of another one has the same effect
		}
		return client.IgnoreNotFound(err)
	case plan.Hold:
		return c.finalizers(ctx, object, append(slices.Clone(object.GetFinalizers()), labels.FinalizerMove))
	case plan.Release:
		return c.finalizers(ctx, object, without(object.GetFinalizers(), labels.FinalizerMove))
	}
	return fmt.Errorf("unknown verb %q", one.Verb)
}

// orNull is the value of a merge patch that removes what is empty.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == one })
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// apply replaces an object that the move owns.
func (c *controller) apply(ctx context.Context, object client.Object) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.client.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner(labels.OwnerMove), client.ForceOwnership)
}

// remove deletes an object; exactly this one, if its UID is known.
func (c *controller) remove(ctx context.Context, object client.Object) error {
	var options []client.DeleteOption
	if uid := object.GetUID(); uid != "" {
		options = append(options, client.Preconditions{UID: &uid})
	}
	err := c.client.Delete(ctx, object, options...)
	if apierrors.IsConflict(err) {
		return nil // another one has the name, and the next step sees it
	}
	return client.IgnoreNotFound(err)
}

// fence deletes a volume that is in use. Its version is a precondition: it is as the plan knew it.
func (c *controller) fence(ctx context.Context, volume client.Object) error {
	if volume.GetDeletionTimestamp() == nil {
		uid, version := volume.GetUID(), volume.GetResourceVersion()
		err := c.client.Delete(ctx, volume, client.Preconditions{UID: &uid, ResourceVersion: &version})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // the next step sees what it is now
		}
		return err // its finalizer is the next step
	}
	return c.finalizers(ctx, volume, without(volume.GetFinalizers(), plan.Protection))
}

// finalizers replaces the finalizers of an object, unless it has changed.
func (c *controller) finalizers(ctx context.Context, object client.Object, all []string) error {
	if all == nil {
		all = []string{}
	}
	return c.patch(ctx, object, map[string]any{"metadata": map[string]any{"finalizers": all, "resourceVersion": object.GetResourceVersion()}})
}

// patch merges a change into an object, unless another one has its name by now.
func (c *controller) patch(ctx context.Context, object client.Object, change map[string]any) error {
	metadata, is := change["metadata"].(map[string]any)
	if !is {
		metadata = map[string]any{}
	}
	metadata["uid"], change["metadata"] = object.GetUID(), metadata
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	err = c.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, body), client.FieldOwner(labels.OwnerMove))
	if apierrors.IsConflict(err) {
		return nil // the next step sees what it is now
	}
	return client.IgnoreNotFound(err)
}

// evict ends a pod, as its disruption budget allows.
func (c *controller) evict(ctx context.Context, pod client.Object) error {
	uid := pod.GetUID()
	err := c.client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.GetNamespace(), Name: pod.GetName()},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// save writes the status, unless the move has changed since it was read.
func (c *controller) save(ctx context.Context, move *v1alpha1.VolumeMove, status *v1alpha1.VolumeMoveStatus) error {
	now := move.DeepCopy()
	now.Status = *status
	err := c.client.Status().Patch(ctx, now, client.MergeFromWithOptions(move.DeepCopy(), client.MergeFromWithOptimisticLock{}), client.FieldOwner(labels.OwnerMove))
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}
