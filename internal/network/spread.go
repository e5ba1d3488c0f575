// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Two lanes are worth two only on two nodes. Kubernetes keeps gateways apart when it places them, and never moves one again: after a node
// was drained and is back, both may be on the other one.

// +kubebuilder:rbac:namespace=liqo,groups="",resources=pods/eviction,verbs=create

const (
	// spreadAfter is how long gateways may share a node: whoever works on nodes is done by then, and all lanes are up again.
	spreadAfter = 5 * time.Minute
	// spreadPause is between two attempts: the scheduler may have a reason that is not seen here.
	spreadPause = time.Hour
)

// spreader moves one gateway away from a node that has several. There is one worker, so nothing guards its fields.
type spreader struct {
	*shared
	// since is when a gateway was first seen to be better elsewhere; zero if none is.
	since time.Time
	// rests until then.
	rests time.Time
}

func setupSpread(mgr manager.Manager, s *shared) error {
	the := reconcile.Request{}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{the} })
	err := builder.ControllerManagedBy(mgr).Named("gatewayspread").
		Watches(&corev1.Node{}, all, builder.WithPredicates(nodeChanged())).
		WatchesRawSource(source.Kind[client.Object](s.gateways.cache, &corev1.Pod{}, all)).
		Complete(&spreader{shared: s})
	if err != nil {
		return fmt.Errorf("set up controller of the gateways' places: %w", err)
	}
	return nil
}

// Reconcile waits until a gateway was better elsewhere for long, and evicts it.
func (r *spreader) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var pods corev1.PodList
	if err := r.gateways.cache.List(ctx, &pods); err != nil {
		return reconcile.Result{}, fmt.Errorf("list pods of gateways: %w", err)
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	pod, now := toMove(pods.Items, r.gateways.heardOf(), nodes), r.options.Now()
	if pod == nil {
		r.since = time.Time{}
		if len(pods.Items) < 2 {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{RequeueAfter: r.options.SpreadAfter}, nil // what gateways report is no event here
	}
	if r.since.IsZero() {
		r.since = now
	}
	if left := max(r.since.Add(r.options.SpreadAfter).Sub(now), r.rests.Sub(now)); left > 0 {
		return reconcile.Result{RequeueAfter: min(left, time.Minute)}, nil // looked at in between: all of it must last
	}
	r.since, r.rests = time.Time{}, now.Add(spreadPause)
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}}
	err = r.client.SubResource("eviction").Create(ctx, pod, eviction)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsTooManyRequests(err): // gone, or not to be disturbed
		return reconcile.Result{RequeueAfter: spreadPause}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("evict gateway pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	log.FromContext(ctx).Info("gateway evicted, because another one is on its node and there is an empty one", "pod", pod.Name, "node", pod.Spec.NodeName)
	return reconcile.Result{RequeueAfter: spreadPause}, nil
}

// toMove is a gateway that shares its node with another one although it could run on a node without any; nil if there is none, or if any
// lane does not work, to every peer: then none is disturbed.
func toMove(pods []corev1.Pod, heard map[int]heard, nodes []corev1.Node) (move *corev1.Pod) {
	on, lanes := map[string]int{}, map[int]bool{}
	for i := range pods {
		pod := &pods[i]
		lane, ok := laneOf(pod.Labels)
		h, reports := heard[lane]
		if !ok || lanes[lane] || pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" || !reports || !worksWell(&h, pod) {
			return nil
		}
		lanes[lane] = true
		on[pod.Spec.NodeName]++
	}
	highest := -1
	for i := range pods {
		pod := &pods[i]
		if lane, _ := laneOf(pod.Labels); on[pod.Spec.NodeName] > 1 && lane > highest && hasRoom(pod, on, nodes) {
			move, highest = pod, lane
		}
	}
	return move
}

func worksWell(h *heard, pod *corev1.Pod) bool {
	if h.pod != pod.Name || h.silent || h.said.Error != "" {
		return false
	}
	for i := range h.said.Peers {
		if !h.said.Peers[i].Up {
			return false
		}
	}
	return true
}

// hasRoom tells whether there is a node without a gateway that the scheduler may put the pod on, as far as labels and taints go.
func hasRoom(pod *corev1.Pod, on map[string]int, nodes []corev1.Node) bool {
	blocks := func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }
	for i := range nodes {
		node := &nodes[i]
		if on[node.Name] > 0 || isVirtual(node) || !isReady(node) || node.Spec.Unschedulable {
			continue
		}
		fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
		_, refused := schedulinghelpers.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, blocks, false)
		if err == nil && fits && !refused {
			return true
		}
	}
	return false
}
