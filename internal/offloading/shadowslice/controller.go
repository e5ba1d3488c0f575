// SPDX-License-Identifier: Apache-2.0

package shadowslice

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/apis/reasons"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/endpoints"
	"liqo.io/liqo/internal/offloading/networks"
	"liqo.io/liqo/internal/offloading/peers"
	"liqo.io/liqo/internal/offloading/refused"
	"liqo.io/liqo/internal/offloading/verdict"
)

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=shadowendpointslices,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=list;watch
// +kubebuilder:rbac:groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-remote,groups=virtualkubelet.liqo.io,resources=shadowendpointslices/finalizers,verbs=update
// +kubebuilder:rbac:namespace=liqo-remote,groups=discovery.k8s.io,resources=endpointslices,verbs=get;create;patch;delete

// Reasons of events on ShadowEndpointSlices.
const (
	reasonForeignAddresses = reasons.ForeignAddresses
	reasonFailedApply      = reasons.FailedApply
)

var endpointSlice = discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")

// Options of the controller.
type Options struct {
	RemoteNamespaces *peers.Namespaces
	// InternalNetwork: networks are agreed with peers. Otherwise they are those in their ForeignClusters. Endpoints must lie in them.
	InternalNetwork bool
	// OwnNetworks are those of this cluster's pods and Services, as far as they are known. No endpoint of a peer lies in them.
	OwnNetworks []netip.Prefix
	// Workers is how many are reconciled at the same time.
	Workers int
	// RefusalRetry is the longest pause before a slice is written again that a rule of this cluster has refused; 0 means five minutes.
	RefusalRetry time.Duration
}

// reconciler creates the EndpointSlices of ShadowEndpointSlices.
type reconciler struct {
	options Options
	cached  client.Reader
	live    client.Client
	own     *ssa.Applier
	events  peers.Warnings
	// refusals are what was reported of ShadowEndpointSlices.
	refusals *refused.Memory
}

// Setup registers the controller. The manager's cache may know only EndpointSlices with the label
// liqo.io/managed-by=shadowendpointslice.
func Setup(mgr manager.Manager, o Options) error {
	live, err := kubemanager.Live(mgr)
	if err != nil {
		return fmt.Errorf("client for shadow endpoint slices: %w", err)
	}
	r := &reconciler{
		options: o, cached: mgr.GetClient(), live: live,
		own: ssa.NewApplier(live, labels.OwnerShadowSlice), events: peers.NewWarnings(mgr, "liqo-shadowendpointslice", o.RemoteNamespaces),
		refusals: refused.New(o.RefusalRetry),
	}
	if err := indexPods(mgr); err != nil {
		return err
	}
	ours := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[labels.ManagedBy] == labels.ManagedByShadowEndpointSlice
	})
	b := builder.ControllerManagedBy(mgr).Named("shadowendpointslice").
		For(&vkv1alpha1.ShadowEndpointSlice{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Workers,
			NewQueue:                kubemanager.FairQueue(o.Workers, o.RemoteNamespaces.KnownPeer),
			RateLimiter:             kubemanager.RetryBackoff(),
		}).
		Watches(&discoveryv1.EndpointSlice{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(ours)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod), builder.WithPredicates(otherEndpoint)).
		Watches(&discoveryv1alpha1.ForeignCluster{}, handler.EnqueueRequestsFromMapFunc(r.ofForeignCluster), builder.WithPredicates(otherReach)).
		Watches(
			&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}),
		)
	if o.InternalNetwork {
		b = b.Watches(&netv1alpha1.TunnelEndpoint{}, handler.EnqueueRequestsFromMapFunc(r.ofTunnel), builder.WithPredicates(networks.OtherTunnels))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up controller of shadow endpoint slices: %w", err)
	}
	return nil
}

// otherReach passes updates that may change the readiness of endpoints: other fields of a ForeignCluster change often.
var otherReach = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*discoveryv1alpha1.ForeignCluster)
	now, isNew := e.ObjectNew.(*discoveryv1alpha1.ForeignCluster)
	return ok && isNew && (endpoints.Reachable(before) != endpoints.Reachable(now) || peers.ClusterID(before) != peers.ClusterID(now) ||
		!slices.Equal(before.PodCIDRs(), now.PodCIDRs()))
}}

func (r *reconciler) ofForeignCluster(ctx context.Context, object client.Object) []reconcile.Request {
	fc, ok := object.(*discoveryv1alpha1.ForeignCluster)
	if !ok {
		return nil
	}
	return r.ofCluster(ctx, peers.ClusterID(fc))
}

// ofNode returns requests for the slices of peers that are named like a node which comes or goes: while it exists, the name is not theirs.
func (r *reconciler) ofNode(ctx context.Context, node client.Object) (all []reconcile.Request) {
	var peers discoveryv1alpha1.ForeignClusterList
	if r.cached.List(ctx, &peers, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	for i := range peers.Items {
		if identity := peers.Items[i].Spec.ClusterIdentity; identity != nil && identity.ClusterName == node.GetName() {
			all = append(all, r.ofCluster(ctx, identity.ClusterID)...)
		}
	}
	return all
}

func (r *reconciler) ofTunnel(ctx context.Context, object client.Object) []reconcile.Request {
	tunnel, ok := object.(*netv1alpha1.TunnelEndpoint)
	if !ok {
		return nil
	}
	return r.ofCluster(ctx, tunnel.Spec.ClusterIdentity.ClusterID)
}

// ofCluster returns requests for all ShadowEndpointSlices of a peer.
func (r *reconciler) ofCluster(ctx context.Context, clusterID string) (all []reconcile.Request) {
	var list vkv1alpha1.ShadowEndpointSliceList
	if r.cached.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil || clusterID == "" {
		return nil
	}
	peers := map[string]string{}
	for i := range list.Items {
		namespace := list.Items[i].Namespace
		if _, ok := peers[namespace]; !ok {
			peer, err := r.options.RemoteNamespaces.Peer(ctx, namespace)
			if err != nil {
				peer = clusterID // an unneeded reconciliation does no harm
			}
			peers[namespace] = peer
		}
		if peers[namespace] == clusterID {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return all
}

// Reconcile brings the EndpointSlice of one ShadowEndpointSlice to its desired state.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	return r.refusals.Retry(ctx, request, reconcile.Result{}, r.reconcile(ctx, request))
}

func (r *reconciler) reconcile(ctx context.Context, request reconcile.Request) error {
	var shadowSlice vkv1alpha1.ShadowEndpointSlice
	if err := r.cached.Get(ctx, request.NamespacedName, &shadowSlice); apierrors.IsNotFound(err) {
		r.own.Forget(request.NamespacedName)
		return r.orphaned(ctx, request.NamespacedName)
	} else if err != nil {
		return err
	}
	if shadowSlice.DeletionTimestamp != nil {
		return nil // the garbage collector deletes the slice
	}
	origin, err := r.origin(ctx, shadowSlice.Namespace)
	if err != nil || origin.ClusterID == "" {
		return err // not a remote namespace
	}
	if origin.Pods, err = r.pods(ctx, &shadowSlice); err != nil {
		return err
	}
	slice, err := r.slice(ctx, request.NamespacedName)
	if err != nil {
		return err
	}
	if slice != nil {
		switch owner := metav1.GetControllerOf(slice); {
		case slice.Labels[labels.ManagedBy] != labels.ManagedByShadowEndpointSlice || owner != nil && owner.Name != shadowSlice.Name:
			r.events.Warn(&shadowSlice, reasons.NameTaken, "Apply",
				"this namespace has another EndpointSlice of the name %s, which is not touched; delete it", shadowSlice.Name)
			return nil
		case owner != nil && owner.UID != shadowSlice.UID:
			return r.deleteSuperseded(ctx, slice, owner.UID)
		}
	}
	if slice == nil && r.own.Remembers(endpointSlice, request.NamespacedName) {
		switch now, err := r.liveShadow(ctx, request.NamespacedName); {
		case err != nil:
			return err
		case now == nil || now.UID != shadowSlice.UID || now.DeletionTimestamp != nil:
			return nil // the garbage collector deleted the slice with its ShadowEndpointSlice; the event follows
		}
	}
	intent, rejected := endpoints.EndpointSlice(&shadowSlice, origin)
	if rejected != "" {
		r.events.Warn(&shadowSlice, reasonForeignAddresses, "Apply", "%.1000s", rejected)
	}
	var there client.Object
	if slice != nil {
		there = slice
	}
	err = r.own.ApplyTo(ctx, intent, there)
	switch {
	case err == nil, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	}
	if verdict.Judges(err) {
		r.events.Warn(&shadowSlice, reasonFailedApply, "Apply", "the slice cannot be written: %s", verdict.Refusal(err, shadowSlice.Namespace, shadowSlice.Name))
	}
	return refused.ByRule(err)
}

// origin returns what is known about the peer that a namespace was created for.
func (r *reconciler) origin(ctx context.Context, namespace string) (endpoints.Origin, error) {
	peer, err := r.options.RemoteNamespaces.Peer(ctx, namespace)
	origin := endpoints.Origin{ClusterID: peer, External: !r.options.InternalNetwork}
	if err != nil || peer == "" {
		return origin, err
	}
	fc, err := peers.ForeignCluster(ctx, r.cached, peer)
	if err != nil {
		return origin, err
	}
	origin.Reachable = endpoints.Reachable(fc)
	if fc != nil && fc.Spec.ClusterIdentity != nil {
		switch err := r.cached.Get(ctx, client.ObjectKey{Name: fc.Spec.ClusterIdentity.ClusterName}, &corev1.Node{}); {
		case apierrors.IsNotFound(err):
			origin.Node = fc.Spec.ClusterIdentity.ClusterName
		case err != nil:
			return origin, fmt.Errorf("look for a node with the name of peer %s: %w", peer, err)
		}
	}
	if origin.Own, err = networks.Read(ctx, r.cached, r.options.OwnNetworks); err != nil {
		return origin, err
	}
	if origin.External {
		origin.Networks = networks.External(fc, origin.Own)
		return origin, nil
	}
	var tunnels netv1alpha1.TunnelEndpointList
	if err := r.cached.List(ctx, &tunnels, client.UnsafeDisableDeepCopy); err != nil {
		return origin, fmt.Errorf("list tunnel endpoints: %w", err)
	}
	for i := range tunnels.Items {
		if tunnels.Items[i].Spec.ClusterIdentity.ClusterID == peer {
			origin.Networks = append(origin.Networks, networks.OfTunnel(&tunnels.Items[i])...)
		}
	}
	return origin, nil
}

// slice returns the EndpointSlice of the name. The cache has only managed ones, so an unmanaged one is read live.
func (r *reconciler) slice(ctx context.Context, key types.NamespacedName) (*discoveryv1.EndpointSlice, error) {
	slice := &discoveryv1.EndpointSlice{}
	err := r.cached.Get(ctx, key, slice)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, slice)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for endpoint slice %s: %w", key, err)
	}
	return slice, nil
}

// liveShadow reads the ShadowEndpointSlice of a name live; nil if there is none.
func (r *reconciler) liveShadow(ctx context.Context, key types.NamespacedName) (*vkv1alpha1.ShadowEndpointSlice, error) {
	shadowSlice := &vkv1alpha1.ShadowEndpointSlice{}
	err := r.live.Get(ctx, key, shadowSlice)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for shadow endpoint slice %s: %w", key, err)
	}
	return shadowSlice, nil
}

// deleteSuperseded deletes the slice of an earlier ShadowEndpointSlice of the same name, once the API server confirms that its owner is gone. If
// the slice has no owner, there must be no ShadowEndpointSlice of the name at all.
func (r *reconciler) deleteSuperseded(ctx context.Context, slice *discoveryv1.EndpointSlice, owner types.UID) error {
	switch shadowSlice, err := r.liveShadow(ctx, client.ObjectKeyFromObject(slice)); {
	case err != nil:
		return err
	case shadowSlice != nil && (owner == "" || shadowSlice.UID == owner):
		return nil // the cache is behind
	}
	err := r.live.Delete(ctx, slice, client.Preconditions{UID: &slice.UID})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete endpoint slice %s/%s: %w", slice.Namespace, slice.Name, err)
}

// orphaned deletes a managed slice whose owner reference was removed before its owner was deleted. The garbage collector deletes all others.
func (r *reconciler) orphaned(ctx context.Context, key types.NamespacedName) error {
	slice := &discoveryv1.EndpointSlice{}
	if err := r.cached.Get(ctx, key, slice); err != nil {
		return client.IgnoreNotFound(err)
	}
	if slice.DeletionTimestamp != nil || len(slice.OwnerReferences) > 0 || slice.Labels[labels.ManagedBy] != labels.ManagedByShadowEndpointSlice {
		return nil
	}
	return r.deleteSuperseded(ctx, slice, "")
}
