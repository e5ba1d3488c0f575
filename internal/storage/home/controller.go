// SPDX-License-Identifier: Apache-2.0

package home

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/apis/reasons"
	"liqo.io/liqo/internal/storage/data"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch

// Reason of the events about claims and pods that cannot be served where the scheduler has sent them.
const reasonStays = reasons.ClaimStaysHere

// mostRounds bounds how often the pods of a claim are replaced, if others come that go away again.
const mostRounds = 3

// returner brings back claims that the scheduler has sent to a virtual node: their pods were created before them, or before the webhook knew claims.
type returner struct {
	Reader

	own    client.Client
	events events.EventRecorder
	// rounds counts by UID how often the scheduler has sent a claim away.
	rounds sync.Map // of types.UID to int
}

// Setup adds the controller to a manager. It runs in the leader only.
func Setup(mgr manager.Manager) error {
	r := &returner{Reader: Reader{mgr.GetClient(), mgr.GetAPIReader()}, own: mgr.GetClient(), events: mgr.GetEventRecorder("liqo-storage")}
	err := builder.ControllerManagedBy(mgr).Named("storagehome").
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.claimOf)).Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of claims of other classes: %w", err)
	}
	return nil
}

// claimOf maps a claim that waits for a volume on a node to itself.
func (r *returner) claimOf(_ context.Context, object client.Object) []reconcile.Request {
	claim, is := object.(*corev1.PersistentVolumeClaim)
	if !is {
		return nil
	}
	if !waits(claim) {
		if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
			r.rounds.Delete(claim.UID)
		}
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(claim)}}
}

func waits(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil &&
		claim.Annotations[data.SelectedNode] != "" && claim.Annotations[data.Assigned] != data.Provisioner
}

// Reconcile brings a claim back.
func (r *returner) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var claim corev1.PersistentVolumeClaim
	if err := r.Cached.Get(ctx, request.NamespacedName, &claim); err != nil || !waits(&claim) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var virtual corev1.Node
	if err := r.Cached.Get(ctx, types.NamespacedName{Name: claim.Annotations[data.SelectedNode]}, &virtual); err != nil ||
		virtual.Labels[labels.Type] != labels.TypeVirtualNode {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	reason, err := r.Keeping(ctx, claim.Name, &claim)
	if err != nil || reason == "" {
		return reconcile.Result{}, err
	}
	var nodes corev1.NodeList
	if err := r.Cached.List(ctx, &nodes); err != nil {
		return reconcile.Result{}, fmt.Errorf("list nodes: %w", err)
	}
	var own []corev1.Node
	for i := range nodes.Items {
		if nodes.Items[i].Labels[labels.Type] != labels.TypeVirtualNode {
			own = append(own, nodes.Items[i])
		}
	}
	var pods corev1.PodList // our cache of pods has no volumes
	if err := r.Live.List(ctx, &pods, client.InNamespace(claim.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("list pods of %s: %w", claim.Namespace, err)
	}
	var namespace corev1.Namespace
	if err := r.Live.Get(ctx, types.NamespacedName{Name: claim.Namespace}, &namespace); err != nil {
		return reconcile.Result{}, fmt.Errorf("read namespace %s: %w", claim.Namespace, err)
	}
	w := back(&claim, &virtual, own, pods.Items)
	if namespace.Labels[labels.SchedulingEnabled] != "true" || r.round(claim.UID) > mostRounds {
		// Nothing would place other pods in another way, so these are only reported.
		w = way{report: append(w.report, w.replace...)}
	}
	return reconcile.Result{}, r.carryOut(ctx, &claim, &virtual, reason, w)
}

// round counts how often the scheduler has sent a claim away.
func (r *returner) round(claim types.UID) int {
	before, _ := r.rounds.Load(claim)
	count, _ := before.(int)
	r.rounds.Store(claim, count+1)
	return count + 1
}

func (r *returner) carryOut(ctx context.Context, claim *corev1.PersistentVolumeClaim, virtual *corev1.Node, reason string, w way) error {
	if count, _ := r.rounds.Load(claim.UID); count == 1 || count == mostRounds+1 {
		r.events.Eventf(claim, nil, corev1.EventTypeWarning, reasonStays, "Provision", "node %s stands for another cluster: %.800s", virtual.Name, reason)
		for _, pod := range w.report {
			r.events.Eventf(pod, nil, corev1.EventTypeWarning, reasonStays, "Provision",
				"the pod cannot run on node %s: %.700s. If it may run in this cluster, delete the pod and the claim, and create the claim first", virtual.Name, reason)
		}
	}
	var failed []error
	for _, pod := range w.replace {
		log.FromContext(ctx).Info("pod is replaced, because its claim keeps it in this cluster", "namespace", pod.Namespace, "pod", pod.Name, "claim", claim.Name)
		// It has no node, so it ends at once. If it got one meanwhile, it is another version, and stays.
		failed = append(failed, client.IgnoreNotFound(r.own.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("replace pods of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	if !w.release {
		return nil
	}
	released := claim.DeepCopy() // as a provisioner does that cannot serve a node: the scheduler selects another one
	delete(released.Annotations, data.SelectedNode)
	if err := r.own.Update(ctx, released); err != nil {
		return fmt.Errorf("release claim %s/%s from node %s: %w", claim.Namespace, claim.Name, virtual.Name, err)
	}
	return nil
}
