// SPDX-License-Identifier: Apache-2.0

// Package resourceslice is the provider's side of a peering: it grants resources to a consumer and keeps the grant current. Package grant and status.go decide
// what, as functions of values. It must not know what a consumer runs on the virtual node. TestResourceSlice runs it against a real API server with exactly the
// rights of its markers.
package resourceslice

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/peering/grant"
	"liqo.io/liqo/internal/peering/plugin"
	"liqo.io/liqo/internal/peering/reach"
)

// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch;patch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices/status,verbs=patch
// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=namespaces;nodes;pods,verbs=list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses;csidrivers,verbs=list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingressclasses,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=configmaps,resourceNames=liqo-resource-sharing,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo,groups="",resources=configmaps,verbs=delete

const (
	// sharingConfigMap, with one key, holds the sharing percentage while the cluster runs.
	sharingConfigMap = "liqo-resource-sharing"
	sharingKey       = "percentage"

	defaultThreshold = 5
	// sliceWorkers reconcile different tenants concurrently: a plugin that is slow for one peer must not delay the others.
	sliceWorkers = 4
	// pluginRetry is when a failed plugin is called again, if it reports no change before.
	pluginRetry = 10 * time.Second
)

// Options configures the provider's side of a peering.
type Options struct {
	// Namespace is the install namespace (--liqo-namespace), which has the ConfigMap with the sharing percentage.
	Namespace string
	// SharingPercentage applies when the ConfigMap sets none (--resource-sharing-percentage, default 50).
	SharingPercentage int
	// UpdateThreshold is the change, in percent, above which the peer's status is updated at once
	// (--offer-update-threshold-percentage). Nil means 5, or 0 with a plugin.
	UpdateThreshold *int
	// ClusterLabels are set on the virtual nodes of this cluster in its consumers (--cluster-labels).
	ClusterLabels map[string]string
	// IncomingPeering is what incomingPeeringEnabled Auto means: Yes, No or Manual (--incoming-peering, default Yes).
	IncomingPeering discoveryv1alpha1.PeeringEnabled
	// Tolerated reports whether pods of peers may tolerate taints with a key; nil means none. Nodes with other taints are not granted.
	Tolerated func(key string) bool
	// StorageClasses are the names of the storage classes that are granted; * for all (--peer-storage-classes, default *).
	StorageClasses []string
	// PluginAddress is host:port of a resource plugin that decides instead of the percentage (--resource-plugin-address).
	PluginAddress string
	// PluginCertificates is a folder with the authority of the plugin's certificate; empty for a plugin without TLS (--resource-plugin-certificates).
	PluginCertificates string

	// Only tests set the durations below.

	// Debounce is how long changes of nodes and pods are collected. Default 500 ms.
	Debounce time.Duration
	// Refresh and RefreshJitter: smaller changes are written after this time. Default 5 min and 60 s.
	Refresh, RefreshJitter time.Duration
	// PluginTimeout is the deadline of a call to the plugin. Default 2 s.
	PluginTimeout time.Duration
}

func (o *Options) complete() error {
	if o.SharingPercentage < 0 || o.SharingPercentage > grant.MaxPercentage {
		return fmt.Errorf("resource sharing percentage %d: must be from 0 to %d", o.SharingPercentage, grant.MaxPercentage)
	}
	if o.UpdateThreshold == nil {
		threshold := defaultThreshold
		if o.PluginAddress != "" {
			threshold = 0
		}
		o.UpdateThreshold = &threshold
	}
	if *o.UpdateThreshold < 0 {
		return fmt.Errorf("offer update threshold %d%%: must not be negative", *o.UpdateThreshold)
	}
	for duration, standard := range map[*time.Duration]time.Duration{
		&o.Debounce: 500 * time.Millisecond, &o.Refresh: 5 * time.Minute, &o.RefreshJitter: time.Minute, &o.PluginTimeout: plugin.DefaultTimeout,
	} {
		if *duration <= 0 {
			*duration = standard
		}
	}
	return nil
}

// reconciler answers the requests of peers. It reconciles tenant namespaces, not slices: all slices of a tenant
// share one grant, and a peer that creates a thousand of them must cost one reconciliation, not a thousand.
type reconciler struct {
	options Options
	client  client.Client
	live    client.Reader // bypasses the cache
	config  client.Reader // caches only the ConfigMap with the percentage
	usage   *sliceUsage
	plugin  *plugin.Client // may be nil
	tenants *sliceTenants
	// percentage is the last valid one.
	percentage atomic.Int64
}

// Setup registers the controller that answers the requests of peers. The manager's cache should have
// grant.TrimPod and grant.TrimNode as transform functions, to save memory.
func Setup(mgr manager.Manager, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	config, err := sharingConfig(mgr, o.Namespace)
	if err != nil {
		return err
	}
	tenants := newSliceTenants()
	r := &reconciler{
		options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), config: config, tenants: tenants,
		usage: newSliceUsage(mgr.GetCache(), o, tenants.requests),
	}
	r.percentage.Store(int64(o.SharingPercentage))
	allTenants := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return tenants.requests() })
	specChanged := predicate.Or(
		predicate.Predicate(predicate.GenerationChangedPredicate{}), predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{},
	)

	b := builder.ControllerManagedBy(mgr).Named("resourceslice").
		WithOptions(controller.Options{MaxConcurrentReconciles: sliceWorkers}).
		Watches(&sharingv1alpha1.ResourceSlice{}, handler.EnqueueRequestsFromMapFunc(tenantOfSlice)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(tenantOfNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(
			&discoveryv1alpha1.ForeignCluster{}, handler.EnqueueRequestsFromMapFunc(r.tenantsOfPeer),
			builder.WithPredicates(predicate.Or(specChanged, proxyWantedChanged, decisionChanged)),
		).
		Watches(&storagev1.StorageClass{}, allTenants).
		Watches(&storagev1.CSIDriver{}, allTenants).
		Watches(&networkingv1.IngressClass{}, allTenants).
		WatchesRawSource(source.Kind[client.Object](config, &corev1.ConfigMap{}, allTenants)).
		WatchesRawSource(r.usage)
	if o.PluginAddress != "" {
		if r.plugin, err = plugin.New(o.PluginAddress, o.PluginCertificates, o.PluginTimeout); err != nil {
			return err
		}
		b = b.WatchesRawSource(source.Func(r.followPlugin))
	}
	return b.Complete(r)
}

// sharingConfig returns a cache of one ConfigMap. The manager's cache may be restricted to others, and should not hold all.
func sharingConfig(mgr manager.Manager, namespace string) (cache.Cache, error) {
	config, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", sharingConfigMap)}},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of ConfigMap %s/%s: %w", namespace, sharingConfigMap, err)
	}
	return config, mgr.Add(config)
}

// followPlugin queues the tenants for which the plugin reports a change.
func (r *reconciler) followPlugin(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		r.plugin.Watch(ctx, func(clusterID string) {
			for _, request := range r.tenants.requestsOf(clusterID, true) {
				queue.Add(request)
			}
		})
		if err := r.plugin.Close(); err != nil {
			log.FromContext(ctx).V(1).Info("resource plugin not closed", "reason", err.Error())
		}
	}()
	return nil
}

func tenantOfSlice(_ context.Context, object client.Object) []reconcile.Request {
	if slice, ok := object.(*sharingv1alpha1.ResourceSlice); !ok || !slice.IsCopy() {
		return nil
	}
	return []reconcile.Request{sliceRequest(object.GetNamespace())}
}

func tenantOfNamespace(_ context.Context, object client.Object) []reconcile.Request {
	if object.GetLabels()[labels.TenantNamespace] != labels.True {
		return nil
	}
	return []reconcile.Request{sliceRequest(object.GetName())}
}

func (r *reconciler) tenantsOfPeer(_ context.Context, object client.Object) []reconcile.Request {
	peer, ok := object.(*discoveryv1alpha1.ForeignCluster)
	if !ok || peer.Spec.ClusterIdentity == nil {
		return nil
	}
	return r.tenants.requestsOf(peer.Spec.ClusterIdentity.ClusterID, false)
}

// Reconcile answers all slices of one tenant namespace.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := request.Name
	clusterID, err := r.tenantID(ctx, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	live, dying, err := r.copies(ctx, r.client, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if clusterID == "" || len(live)+len(dying) == 0 {
		// Not a tenant namespace, or no slice of the peer in it. An event of either triggers the next reconciliation.
		r.tenants.forget(namespace)
		return reconcile.Result{}, nil
	}
	peer, err := r.foreignCluster(ctx, clusterID)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(dying) > 0 && len(live) == 0 {
		// The ForeignCluster is deleted with the peer's last slice. A stale cache may show a slice of an earlier peering while
		// the peer has already peered again, so read from the API server.
		if live, dying, err = r.copies(ctx, r.live, namespace); err != nil || len(live)+len(dying) == 0 {
			return reconcile.Result{}, err // the cache will receive the event, which triggers the next reconciliation
		}
	}
	if len(dying) > 0 {
		if len(live) == 0 {
			if err := r.endIncoming(ctx, peer, clusterID); err != nil {
				return reconcile.Result{}, err
			}
		}
		if err := r.release(ctx, dying); err != nil {
			return reconcile.Result{}, err
		}
	}
	requeueAfter, err := r.answer(ctx, r.tenants.get(namespace, clusterID), peer, live)
	return reconcile.Result{RequeueAfter: requeueAfter}, err
}

// nextRefresh adds jitter to spread the refreshes of many tenants.
func (r *reconciler) nextRefresh(now time.Time) time.Time {
	return now.Add(r.options.Refresh + rand.N(r.options.RefreshJitter))
}

// decisionChanged selects the changes of a status that hold another decision about the peer.
var decisionChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	state := func(object client.Object) discoveryv1alpha1.IncomingState {
		if fc, ok := object.(*discoveryv1alpha1.ForeignCluster); ok && fc.Status.Incoming != nil {
			return fc.Status.Incoming.State
		}
		return ""
	}
	return state(e.ObjectOld) != state(e.ObjectNew)
}}

// proxyWantedChanged selects the changes of a status that the answers to a consumer depend on.
var proxyWantedChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*discoveryv1alpha1.ForeignCluster)
	after, ok2 := e.ObjectNew.(*discoveryv1alpha1.ForeignCluster)
	return ok && ok2 && reach.WantsProxy(before) != reach.WantsProxy(after)
}}
