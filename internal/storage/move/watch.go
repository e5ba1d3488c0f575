// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/move/plan"
)

// together is how long changes are collected: what happens to many pods of a namespace at once is one look at its moves.
const together = 100 * time.Millisecond

// watched are the objects that a move waits for.
func watched() []client.Object {
	return []client.Object{
		&corev1.Pod{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}, &storagev1.VolumeAttachment{},
		&networkingv1.NetworkPolicy{}, &rbacv1.RoleBinding{},
	}
}

// concerns reports whether a change of an object can be what a move waits for. The cache does not have the claims of pods: any pod of the namespace may use
// that of the move.
func concerns(move *v1alpha1.VolumeMove, object client.Object) bool {
	if plan.Finished(move) {
		return false
	}
	switch object := object.(type) {
	case *corev1.PersistentVolume:
		claim := object.Spec.ClaimRef
		return object.Name == move.Status.Volume || object.Name == plan.SourceVolumeName(move) ||
			claim != nil && claim.Namespace == move.Namespace && (claim.Name == move.Name || claim.Name == plan.TargetName(move))
	case *storagev1.VolumeAttachment:
		name := object.Spec.Source.PersistentVolumeName
		return name != nil && *name == move.Status.Volume
	case *corev1.Pod:
		return object.Namespace == move.Namespace
	case *corev1.PersistentVolumeClaim:
		return object.Namespace == move.Namespace && slices.Contains([]string{move.Name, plan.SourceName(move), plan.TargetName(move)}, object.Name)
	}
	return object.GetNamespace() == move.Namespace && object.GetLabels()[labels.Move] == string(move.UID)
}

// wake has the moves look again that a change concerns.
func (c *controller) wake() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	look := func(ctx context.Context, q queue, objects ...client.Object) {
		var all v1alpha1.VolumeMoveList
		if err := c.client.List(ctx, &all, client.InNamespace(objects[0].GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "moves that a change may concern are not known")
			return
		}
		for i := range all.Items {
			move := &all.Items[i]
			if slices.ContainsFunc(objects, func(one client.Object) bool { return concerns(move, one) }) {
				q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(move)}, together)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { look(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { look(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { look(ctx, q, e.Object) },
	}
}
