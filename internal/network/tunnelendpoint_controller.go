// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// +kubebuilder:rbac:groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=tunnelendpoints,verbs=create;patch;delete
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=tunnelendpoints/status,verbs=patch

// A peer gets paceBurst looks at once, then one per pacePause: what it pushes costs us live reads and writes.
const (
	paceBurst = 20
	pacePause = 500 * time.Millisecond
)

// tunnelReconciler decides on what peers claim, makes what was agreed, and says how it works. Its unit of work is a tenant namespace.
type tunnelReconciler struct {
	*shared
	// badSince is, by namespace, since when a connection is missed. There is one worker, so nothing guards it, nor paces.
	badSince map[string]time.Time
	// lost are, by namespace, the nodes that were cut off at the last look.
	lost map[string][]string
	// paces are by namespace, too.
	paces map[string]*rate.Limiter
}

func setupTunnelEndpoint(mgr manager.Manager, s *shared) error {
	r := &tunnelReconciler{shared: s, badSince: map[string]time.Time{}, lost: map[string][]string{}, paces: map[string]*rate.Limiter{}}
	everybody := handler.EnqueueRequestsFromMapFunc(s.everybody)
	err := builder.ControllerManagedBy(mgr).Named("tunnelendpoint").
		// One worker: two peers must not be given the same network. It waits for our own API server only.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Watches(&netv1alpha1.NetworkConfig{}, handler.EnqueueRequestsFromMapFunc(s.byConfig)).
		Watches(&netv1alpha1.TunnelEndpoint{}, handler.EnqueueRequestsFromMapFunc(byNamespace)).
		Watches(&discoveryv1alpha1.ForeignCluster{}, handler.EnqueueRequestsFromMapFunc(byPeer)).
		Watches(&corev1.Node{}, everybody, builder.WithPredicates(nodeChanged())).
		WatchesRawSource(source.Kind[client.Object](s.gateways.cache, &corev1.Service{}, everybody)).
		WatchesRawSource(source.Kind[client.Object](s.gateways.cache, &discoveryv1.EndpointSlice{}, everybody)).
		WatchesRawSource(s.gateways.news.source(s.byID)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of tunnel endpoints: %w", err)
	}
	return nil
}

// tunnelScope is one look at one peer.
type tunnelScope struct {
	tenancy
	// ours and theirs are the two NetworkConfigs; nil if not there.
	ours, theirs *netv1alpha1.NetworkConfig
	tunnel       *netv1alpha1.TunnelEndpoint
	// claim is what the peer has, agreed as what we see it, unless it is refused.
	claim   claim
	agreed  agreement
	refused *refusal
	again   time.Duration
}

// Reconcile runs the phases in order.
func (r *tunnelReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pace := r.paces[request.Name]
	if pace == nil {
		pace = rate.NewLimiter(rate.Every(pacePause), paceBurst)
		r.paces[request.Name] = pace
	}
	if !pace.Allow() {
		return reconcile.Result{RequeueAfter: pacePause}, nil
	}
	s := &tunnelScope{tenancy: tenancy{namespace: request.Name}}
	for _, phase := range []func(context.Context, *tunnelScope) error{
		r.observe, r.prune, r.decide, r.answer, r.ensureTunnel, r.writeStatus,
	} {
		if err := phase(ctx, s); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: s.again}, nil
}
