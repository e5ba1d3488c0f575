// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/apis/reasons"
	"liqo.io/liqo/internal/kube/storageclass"
	"liqo.io/liqo/internal/storage/data"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims/status,verbs=patch

// grower makes the real claim of a claim of this cluster as large as the claim asks for. Claims whose data is at a provider grow by the virtual kubelet.
type grower struct {
	namespace string
	client    client.Client
	kube      kubernetes.Interface
	events    events.EventRecorder
}

func setupGrowth(mgr manager.Manager, kube kubernetes.Interface, namespace string) error {
	g := &grower{namespace, mgr.GetClient(), kube, mgr.GetEventRecorder("liqo-storage")}
	err := builder.ControllerManagedBy(mgr).Named("storagegrowth").
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(g.claimOf)).
		Complete(g)
	if err != nil {
		return fmt.Errorf("set up controller of the size of claims: %w", err)
	}
	return nil
}

// claimOf maps a claim of our classes to itself, and a real claim to the claim whose data it holds.
func (g *grower) claimOf(_ context.Context, object client.Object) []reconcile.Request {
	claim, is := object.(*corev1.PersistentVolumeClaim)
	switch {
	case !is:
		return nil
	case claim.Namespace == g.namespace:
		name := claim.Labels[labels.VirtualClaimName]
		if name == "" {
			name = claim.Annotations[labels.VirtualClaimName]
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: claim.Labels[labels.VirtualClaimNamespace], Name: name}}}
	case grows(claim):
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(claim)}}
	}
	return nil
}

// grows reports whether a claim of our classes asks for more than it has.
func grows(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[data.Assigned] == data.Provisioner && claim.Status.Phase == corev1.ClaimBound && claim.DeletionTimestamp == nil &&
		claim.Spec.Resources.Requests.Storage().Cmp(*claim.Status.Capacity.Storage()) > 0
}

// growth is the next step for a claim that grows.
type growth struct {
	// request is what the real claim is to ask for; nil if it does.
	request *resource.Quantity
	// capacity is what the volume and the status of the claim are to show; nil if they do.
	capacity *resource.Quantity
}

// planGrowth compares a claim with its volume and its real claim. Claims never shrink.
func planGrowth(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, real *corev1.PersistentVolumeClaim) (g growth) {
	if want := claim.Spec.Resources.Requests[corev1.ResourceStorage]; real.Spec.Resources.Requests.Storage().Cmp(want) < 0 {
		g.request = &want
	}
	if has := real.Status.Capacity[corev1.ResourceStorage]; has.Cmp(*volume.Spec.Capacity.Storage()) > 0 || has.Cmp(*claim.Status.Capacity.Storage()) > 0 {
		g.capacity = &has
	}
	return g
}

// Reconcile takes one step.
func (g *grower) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var claim corev1.PersistentVolumeClaim
	if err := g.client.Get(ctx, request.NamespacedName, &claim); err != nil || !grows(&claim) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var volume corev1.PersistentVolume
	if err := g.client.Get(ctx, types.NamespacedName{Name: claim.Spec.VolumeName}, &volume); err != nil || data.IsRemote(&volume) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var all corev1.PersistentVolumeClaimList
	if err := g.client.List(ctx, &all, client.InNamespace(g.namespace), client.MatchingLabels{labels.VirtualVolume: data.Name(&volume)}); err != nil ||
		len(all.Items) != 1 {
		return reconcile.Result{}, err
	}
	step := planGrowth(&claim, &volume, &all.Items[0])
	if step.request != nil {
		problem, err := g.uncounted(ctx, &claim, &all.Items[0])
		if err != nil {
			return reconcile.Result{}, err
		}
		if problem != "" {
			g.events.Eventf(&claim, nil, corev1.EventTypeWarning, reasons.VolumeResizeFailed, "Resize", "%s", problem)
			return reconcile.Result{}, nil
		}
		err = g.patch(ctx, &all.Items[0], sized("resources", map[string]any{"requests": storageOf(step.request)}), false)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) { // its class cannot
			g.events.Eventf(
				&claim, nil, corev1.EventTypeWarning, reasons.VolumeResizeFailed, "Resize",
				"the class that holds the data does not let it grow: %.500s", err.Error(),
			)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err // its event follows
	}
	if step.capacity == nil {
		return reconcile.Result{}, nil
	}
	if err := g.patch(ctx, &volume, sized("capacity", storageOf(step.capacity)), false); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, g.patch(ctx, &claim, map[string]any{"status": map[string]any{"capacity": storageOf(step.capacity)}}, true)
}

// uncounted returns why a claim must not grow: a quota bounds the class of its data, and does not count it.
func (g *grower) uncounted(ctx context.Context, claim, real *corev1.PersistentVolumeClaim) (string, error) {
	class, _ := storageclass.Of(real)
	return quotaProblem(ctx, g.client, g.kube, claim, class)
}

func storageOf(size *resource.Quantity) map[string]any {
	return map[string]any{"storage": size.String()}
}

func sized(field string, value any) map[string]any {
	return map[string]any{"spec": map[string]any{field: value}}
}

func (g *grower) patch(ctx context.Context, object client.Object, change map[string]any, status bool) error {
	change["metadata"] = map[string]any{"uid": object.GetUID()}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	patch, owner := client.RawPatch(types.MergePatchType, body), client.FieldOwner(labels.OwnerStorage)
	if status {
		return client.IgnoreNotFound(g.client.Status().Patch(ctx, object, patch, owner))
	}
	return client.IgnoreNotFound(g.client.Patch(ctx, object, patch, owner))
}
