// SPDX-License-Identifier: Apache-2.0

package nodereport

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/gateways"
	"liqo.io/liqo/internal/network/nodes"
)

// +kubebuilder:rbac:namespace=liqo,groups=net.liqo.io,resources=nodereports,verbs=list;watch;delete

// Options is where the reports are.
type Options struct {
	// Namespace is the install namespace.
	Namespace string
	Gateways  *gateways.Reader
}

// reconciler deletes the reports of nodes that are gone. Its unit of work is a node.
type reconciler struct {
	Options
	client client.Client
	live   client.Reader // bypasses the cache
}

// Setup registers what deletes the reports of nodes that are gone.
func Setup(mgr manager.Manager, o Options) error {
	r := &reconciler{o, mgr.GetClient(), mgr.GetAPIReader()}
	err := builder.ControllerManagedBy(mgr).Named("nodereport").
		WatchesRawSource(source.Kind[client.Object](o.Gateways.Cache, &netv1alpha1.NodeReport{}, &handler.EnqueueRequestForObject{})).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(nodes.Changed())).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of reports of nodes: %w", err)
	}
	return nil
}

// Reconcile deletes the report of a node only if a live read shows that the node does not exist.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var report netv1alpha1.NodeReport
	err := r.Gateways.Cache.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: request.Name}, &report)
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
