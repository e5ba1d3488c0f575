// SPDX-License-Identifier: Apache-2.0

package spread

import (
	"cmp"
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

	"liqo.io/liqo/internal/network/endpoint"
	"liqo.io/liqo/internal/network/gateways"
	"liqo.io/liqo/internal/network/nodes"
	"liqo.io/liqo/internal/network/report"
)

// Two lanes protect against the failure of a node only on two nodes. Kubernetes spreads gateways when it schedules them, and never moves one later:
// after a node was drained and is back, both may be on the other node.

// +kubebuilder:rbac:namespace=liqo,groups="",resources=pods/eviction,verbs=create

const (
	// spreadAfter is how long gateways may share a node. Maintenance of nodes is usually over by then, and all lanes are up again.
	spreadAfter = 5 * time.Minute
	// spreadPause is the pause between two evictions: the scheduler may have a reason for its choice that is not visible here.
	spreadPause = time.Hour
)

// Options is which gateways to spread, and when.
type Options struct {
	Gateways *gateways.Reader
	// After is how long gateways may share a node although another one is free. Default 5 minutes.
	After time.Duration
	// Now is the clock.
	Now func() time.Time
}

// spreader evicts a gateway from a node that has several. It has one worker, so its fields need no lock.
type spreader struct {
	Options
	client client.Client
	// since is when it first observed a gateway that should move; zero if there is none.
	since time.Time
	// pausedUntil is when it may evict again.
	pausedUntil time.Time
}

func Setup(mgr manager.Manager, o Options) error {
	o.After = cmp.Or(o.After, spreadAfter)
	request := reconcile.Request{}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{request} })
	err := builder.ControllerManagedBy(mgr).Named("gatewayspread").
		Watches(&corev1.Node{}, all, builder.WithPredicates(nodes.Changed())).
		WatchesRawSource(source.Kind[client.Object](o.Gateways.Cache, &corev1.Pod{}, all)).
		Complete(&spreader{Options: o, client: mgr.GetClient()})
	if err != nil {
		return fmt.Errorf("set up the controller that spreads gateway pods over nodes: %w", err)
	}
	return nil
}

// Reconcile evicts a gateway after it should have moved for SpreadAfter without a break.
func (r *spreader) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var pods corev1.PodList
	if err := r.Gateways.Cache.List(ctx, &pods); err != nil {
		return reconcile.Result{}, fmt.Errorf("list pods of gateways: %w", err)
	}
	nodes, err := nodes.Real(ctx, r.client)
	if err != nil {
		return reconcile.Result{}, err
	}
	pod, now := toMove(pods.Items, r.Gateways.Observations(), nodes), r.Now()
	if pod == nil {
		r.since = time.Time{}
		if len(pods.Items) < 2 {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{RequeueAfter: r.After}, nil // the reports of gateways do not enqueue this controller
	}
	if r.since.IsZero() {
		r.since = now
	}
	if left := max(r.since.Add(r.After).Sub(now), r.pausedUntil.Sub(now)); left > 0 {
		return reconcile.Result{RequeueAfter: min(left, time.Minute)}, nil // check in between that the situation lasts
	}
	r.since, r.pausedUntil = time.Time{}, now.Add(spreadPause)
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}}
	err = r.client.SubResource("eviction").Create(ctx, pod, eviction)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsTooManyRequests(err): // deleted, replaced, or protected by a disruption budget
		return reconcile.Result{RequeueAfter: spreadPause}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("evict gateway pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	log.FromContext(ctx).Info(
		"gateway evicted, because it shared its node with another one while a node without gateway is free", "pod", pod.Name, "node",
		pod.Spec.NodeName,
	)
	return reconcile.Result{RequeueAfter: spreadPause}, nil
}

// toMove returns a gateway that shares its node with another one although it could run on a node without one. It returns nil if there is none, or if
// any lane does not reach every peer, because then no lane must be disturbed.
func toMove(pods []corev1.Pod, observations map[int]report.Observation, nodes []corev1.Node) (move *corev1.Pod) {
	on, lanes := map[string]int{}, map[int]bool{}
	for i := range pods {
		pod := &pods[i]
		lane, ok := endpoint.LaneOf(pod.Labels)
		h, reports := observations[lane]
		if !ok || lanes[lane] || pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" || !reports || !worksWell(&h, pod) {
			return nil
		}
		lanes[lane] = true
		on[pod.Spec.NodeName]++
	}
	highest := -1
	for i := range pods {
		pod := &pods[i]
		if lane, _ := endpoint.LaneOf(pod.Labels); on[pod.Spec.NodeName] > 1 && lane > highest && hasFreeNode(pod, on, nodes) {
			move, highest = pod, lane
		}
	}
	return move
}

func worksWell(h *report.Observation, pod *corev1.Pod) bool {
	if h.Pod != pod.Name || h.Silent || h.Reported.Error != "" {
		return false
	}
	for i := range h.Reported.Peers {
		if !h.Reported.Peers[i].Up {
			return false
		}
	}
	return true
}

// hasFreeNode reports whether there is a node without a gateway on which the scheduler may place the pod, by labels and taints.
func hasFreeNode(pod *corev1.Pod, on map[string]int, all []corev1.Node) bool {
	blocks := func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }
	for i := range all {
		node := &all[i]
		if on[node.Name] > 0 || nodes.IsVirtual(node) || !nodes.IsReady(node) || node.Spec.Unschedulable {
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
