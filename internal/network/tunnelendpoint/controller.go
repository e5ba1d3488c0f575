// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/ratelimit"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/network/claim"
	"liqo.io/liqo/internal/network/gateways"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/nodes"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/tenants"
	"liqo.io/liqo/internal/network/trust"
)

// +kubebuilder:rbac:groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=tunnelendpoints,verbs=create;patch;delete
// +kubebuilder:rbac:namespace=liqo-tenant,groups=net.liqo.io,resources=tunnelendpoints/status,verbs=patch

// A peer gets paceBurst reconciles at once, then one per pacePause, because each of its changes costs us live reads and writes.
const (
	paceBurst = 20
	pacePause = 500 * time.Millisecond
)

// Options is what the agreements with peers are made from.
type Options struct {
	// Local is this cluster.
	Local discoveryv1alpha1.ClusterIdentity
	// Namespace is the install namespace, where the gateways run.
	Namespace string
	Peers     *tenants.Reader
	Gateways  *gateways.Reader
	Pools     *pools.Reader
	Identity  *trust.Identity
	// Now is the clock.
	Now func() time.Time
}

// reconciler answers the claims of peers, writes the agreed TunnelEndpoints and reports their state. Its unit of work is a tenant namespace.
type reconciler struct {
	Options
	client client.Client
	live   client.Reader // bypasses the cache
	own    *ssa.Applier  // applies as labels.OwnerNetwork
	events events.EventRecorder
	// badSince is, by namespace, since when a connection is worse than its status. There is one worker, so the maps need no lock.
	badSince map[string]time.Time
	// lost are, by namespace, the nodes that were cut off at the last reconcile.
	lost map[string][]string
	// carried is, by namespace, the last carrier: while a gateway restarts or finds another way, the status has none.
	carried map[string]string
	// limiters are by namespace.
	limiters *ratelimit.Limiter[string]
	steady   *steadiness
}

func newLimiters() *ratelimit.Limiter[string] {
	return ratelimit.New[string](rate.Every(pacePause), paceBurst, 1000)
}

func newTunnelReconciler(o Options) *reconciler {
	return &reconciler{
		Options: o, badSince: map[string]time.Time{}, lost: map[string][]string{}, carried: map[string]string{}, limiters: newLimiters(), steady: newSteadiness(),
	}
}

func Setup(mgr manager.Manager, o Options) error {
	r := newTunnelReconciler(o)
	r.client, r.live, r.own, r.events = mgr.GetClient(), mgr.GetAPIReader(), ssa.NewApplier(mgr.GetClient(), labels.OwnerNetwork),
		mgr.GetEventRecorder(labels.OwnerNetwork)
	allPeers := handler.EnqueueRequestsFromMapFunc(o.Peers.AllPeers)
	err := builder.ControllerManagedBy(mgr).Named("tunnelendpoint").
		// One worker: two peers must not be given the same network. It waits for our own API server only.
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Watches(&netv1alpha1.NetworkConfig{}, handler.EnqueueRequestsFromMapFunc(o.Peers.ByConfig)).
		Watches(&netv1alpha1.TunnelEndpoint{}, handler.EnqueueRequestsFromMapFunc(tenants.ByNamespace)).
		Watches(&discoveryv1alpha1.ForeignCluster{}, handler.EnqueueRequestsFromMapFunc(tenants.ByPeer)).
		Watches(&corev1.Node{}, allPeers, builder.WithPredicates(nodes.Changed())).
		WatchesRawSource(source.Kind[client.Object](o.Gateways.Cache, &corev1.Service{}, allPeers)).
		WatchesRawSource(source.Kind[client.Object](o.Gateways.Cache, &discoveryv1.EndpointSlice{}, allPeers)).
		WatchesRawSource(source.Kind[client.Object](o.Gateways.Cache, &netv1alpha1.NodeReport{}, allPeers)).
		WatchesRawSource(source.Kind[client.Object](o.Identity.Cache, &corev1.Secret{}, allPeers)).
		WatchesRawSource(o.Gateways.Updates.Source(o.Peers.ByID)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the TunnelEndpoint controller: %w", err)
	}
	return nil
}

// scope is the state of one reconcile of one peer.
type scope struct {
	tenants.Tenant
	// ours and theirs are the two NetworkConfigs; nil if not there.
	ours, theirs *netv1alpha1.NetworkConfig
	tunnel       *netv1alpha1.TunnelEndpoint
	// claim is what the peer claims, agreed the prefixes under which we reach it; both are empty if the claim is refused.
	claim   claim.Claim
	agreed  agreement
	refused *claim.Refusal
	// unread: the claim is not read yet, because the peer changed it too often. What was agreed before stays.
	unread bool
	// held: the networks of the claim do not count yet, and claim has those that do. The peer gets no answer yet.
	held bool
	// awaits is what nodes have not reported for it.
	awaits awaits
	// reached are the networks that nodes reach without a peer, if assessed.
	reached      []ipam.Use
	assessed     bool
	pools        *ipam.Pools
	requeueAfter time.Duration
}

// requeue asks for the next reconcile after a time at the latest; zero asks for none.
func (s *scope) requeue(after time.Duration) {
	if after > 0 && (s.requeueAfter == 0 || after < s.requeueAfter) {
		s.requeueAfter = after
	}
}

// Reconcile runs the phases in order.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if !r.limiters.Allow(request.Name, r.Now()) {
		return reconcile.Result{RequeueAfter: pacePause}, nil
	}
	s := &scope{Tenant: tenants.Tenant{Namespace: request.Name}}
	for _, phase := range []func(context.Context, *scope) error{
		r.observe, r.prune, r.decide, r.answer, r.ensureTunnel, r.writeStatus,
	} {
		if err := phase(ctx, s); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{RequeueAfter: s.requeueAfter}, nil
}
