// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/reach"
)

// +kubebuilder:rbac:namespace=liqo,groups=net.liqo.io,resources=nodereports,verbs=list;watch;delete

// nodeReports lists what the agents report. The cache is that of the install namespace, which no peer writes into.
func (b *poolReader) nodeReports(ctx context.Context) ([]netv1alpha1.NodeReport, error) {
	var reports netv1alpha1.NodeReportList
	if err := b.own.List(ctx, &reports, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list reports of nodes: %w", err)
	}
	return reports.Items, nil
}

// conflicts states which networks of the peer nodes reach without it, what follows from that, and what to do; empty if there is no conflict.
func (w words) conflicts(namespace string, spec *netv1alpha1.TunnelEndpointSpec, reached []ipam.Use) string {
	pools, peer := ipam.Pools{Reached: reached}, "its ForeignCluster"
	if fc := w.peers[namespace]; fc != nil {
		peer = "ForeignCluster " + fc.Name
	}
	var texts []string
	for _, one := range networksOf(spec) {
		word, wanted, here := w.about(namespace, one.own), pools.Reaches(one.own), pools.Reaches(one.here)
		switch {
		case one.own == one.here && len(here) > 0 && word != ipam.Forced:
			texts = append(texts, fmt.Sprintf("%s leads to the peer, and nodes of this cluster reach %s since; remove that from the nodes, or, if it is to lead to the peer, list it in spec.network.forcedCIDRs of %s",
				one.here, reach.Describe(here), peer))
		case one.own != one.here && len(here) > 0:
			texts = append(texts, fmt.Sprintf("%s leads to the peer, and nodes of this cluster reach %s since; remove that from the nodes, or end the peering and peer again to get another network",
				one.here, reach.Describe(here)))
		case one.own != one.here && len(wanted) > 0 && word == ipam.Written:
			texts = append(texts, fmt.Sprintf("%s of the peer is remapped to %s, because nodes of this cluster reach %s; to lead it to the peer nevertheless, list it in spec.network.forcedCIDRs of %s",
				one.own, one.here, reach.Describe(wanted), peer))
		}
	}
	return strings.Join(texts, "; ")
}

// conflict states the conflicts of one peer. A reconciliation that decided about the claim has the networks that nodes reach.
func (r *tunnelReconciler) conflict(ctx context.Context, s *tunnelScope, nodes []corev1.Node) (string, error) {
	if !s.assessed {
		reports, err := r.poolReader.nodeReports(ctx)
		if err != nil {
			return "", err
		}
		s.reached = reach.Reported(reports, nodes, r.options.ownNetworks())
	}
	return r.wordsFor(&s.tenancy).conflicts(s.namespace, &s.tunnel.Spec, s.reached), nil
}

// freeCondition returns the condition NetworksFree; nil as long as there was no conflict, so that nothing is written for it.
func freeCondition(conflict string, before []metav1.Condition) *metav1.Condition {
	switch {
	case conflict != "":
		return &metav1.Condition{Status: metav1.ConditionFalse, Reason: netv1alpha1.ReasonNetworkOverlapsNode, Message: conflict}
	case meta.FindStatusCondition(before, netv1alpha1.ConditionNetworksFree) != nil:
		return &metav1.Condition{Status: metav1.ConditionTrue, Reason: netv1alpha1.ReasonNetworksFree, Message: "no node reaches a network of the peer without it; a network that was remapped for that stays so until it is listed in spec.network.forcedCIDRs of the ForeignCluster"}
	default:
		return nil
	}
}

// recordConflict records an event at the ForeignCluster when other networks than before are in conflict.
func (r *tunnelReconciler) recordConflict(s *tunnelScope, status *netv1alpha1.TunnelEndpointStatus) {
	now := meta.FindStatusCondition(status.Conditions, netv1alpha1.ConditionNetworksFree)
	before := meta.FindStatusCondition(s.tunnel.Status.Conditions, netv1alpha1.ConditionNetworksFree)
	if now != nil && now.Status == metav1.ConditionFalse && (before == nil || before.Message != now.Message) && s.fc != nil {
		r.events.Eventf(s.fc, nil, corev1.EventTypeWarning, netv1alpha1.ReasonNetworkOverlapsNode, "AgreeNetwork", "%s", now.Message)
	}
}

// reportReconciler deletes the reports of nodes that are gone. Its unit of work is a node.
type reportReconciler struct{ *shared }

func setupReports(mgr manager.Manager, s *shared) error {
	r := &reportReconciler{s}
	err := builder.ControllerManagedBy(mgr).Named("nodereport").
		WatchesRawSource(source.Kind[client.Object](s.gateways.cache, &netv1alpha1.NodeReport{}, &handler.EnqueueRequestForObject{})).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(nodeChanged())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of reports of nodes: %w", err)
	}
	return nil
}

// Reconcile deletes the report of a node only if a live read shows that the node does not exist.
func (r *reportReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var report netv1alpha1.NodeReport
	err := r.gateways.cache.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: request.Name}, &report)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.client.Get(ctx, client.ObjectKey{Name: report.Name}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	var nodes corev1.NodeList
	if err := r.live.List(ctx, &nodes, client.MatchingFields{metav1.ObjectNameField: report.Name}); err != nil || len(nodes.Items) > 0 {
		return reconcile.Result{}, err
	}
	if err := r.client.Delete(ctx, &report, client.Preconditions{UID: &report.UID}); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete NodeReport %s of a node that is gone: %w", report.Name, err)
	}
	return reconcile.Result{}, nil
}
