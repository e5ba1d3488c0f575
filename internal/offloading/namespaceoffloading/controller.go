// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloadingapply "liqo.io/liqo/apis/applyconfiguration/offloading/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/provider"
	"liqo.io/liqo/internal/offloading/providers"
)

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings/status,verbs=patch
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=list;watch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-virtual-kubelet-offloaded,verbs=bind

// Options of the controller.
type Options struct {
	Local discoveryv1alpha1.ClusterIdentity
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// reconciler reconciles NamespaceOffloadings, one per namespace.
type reconciler struct {
	options Options
	client  client.Client
	live    client.Reader
	own     *ssa.Applier
	events  events.EventRecorder
	// faulty has, per UID, the generation for whose invalid selector an event was sent.
	faulty sync.Map
	// unaccepted has, per UID and cluster ID, the sentence about labels for which an event was sent.
	unaccepted sync.Map
}

// Setup registers the controller of offloaded namespaces. The manager's cache must have all namespaces, and
// RoleBindings that are labelled as part of this product.
func Setup(mgr manager.Manager, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &reconciler{
		options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(),
		own: ssa.NewApplier(mgr.GetClient(), labels.OwnerOffloading), events: mgr.GetEventRecorder(labels.OwnerOffloading),
	}
	all := handler.EnqueueRequestsFromMapFunc(everyOffloading(r.client))
	original := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[labels.Replication] == "true" })
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{})
	err := builder.ControllerManagedBy(mgr).Named("namespaceoffloading").
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: kubemanager.RetryBackoff()}).
		For(&offloadingv1alpha1.NamespaceOffloading{}).
		Watches(&vkv1alpha1.NamespaceMap{}, all, builder.WithPredicates(original)).
		Watches(&sharingv1alpha1.ResourceSlice{}, all, builder.WithPredicates(original, predicate.Or(changed, phaseChanged))).
		Watches(&discoveryv1alpha1.ForeignCluster{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, all, builder.WithPredicates(providers.NodeChanged)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(ofBinding)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of offloaded namespaces: %w", err)
	}
	return nil
}

func offloadingRequest(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: offloadingv1alpha1.NamespaceOffloadingName}}
}

// ofNamespace maps the event of a namespace whose label may have been set or removed.
func (r *reconciler) ofNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	request := offloadingRequest(object.GetName())
	if object.GetLabels()[labels.SchedulingEnabled] != "" || r.client.Get(ctx, request.NamespacedName, &offloadingv1alpha1.NamespaceOffloading{}) == nil {
		return []reconcile.Request{request}
	}
	return nil
}

func ofBinding(_ context.Context, object client.Object) []reconcile.Request {
	if binding, ok := object.(*rbacv1.RoleBinding); !ok || binding.RoleRef.Name != offloadedRole {
		return nil
	}
	return []reconcile.Request{offloadingRequest(object.GetNamespace())}
}

// offloadScope is the state of one reconciliation.
type offloadScope struct {
	offloading *offloadingv1alpha1.NamespaceOffloading
	namespace  *corev1.Namespace // nil if the cache has none
	providers  []provider.Provider
	// name of the remote namespaces.
	name string
	now  time.Time
	// requeueAfter is when to reconcile again without an event; zero for never.
	requeueAfter time.Duration
	// gone: the object has been deleted or changed, so this reconciliation ends.
	gone bool
}

// Reconcile brings one offloaded namespace to its desired state.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.Name != offloadingv1alpha1.NamespaceOffloadingName {
		return reconcile.Result{}, nil
	}
	s := &offloadScope{offloading: &offloadingv1alpha1.NamespaceOffloading{}, now: r.options.Now()}
	switch err := r.client.Get(ctx, request.NamespacedName, s.offloading); {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, r.sweep(ctx, request.Namespace)
	case err != nil:
		return reconcile.Result{}, err
	}
	for _, phase := range []func(context.Context, *offloadScope) error{
		r.observe, r.ensureFinalizer, r.ensureLabel, r.ensureBindings, r.ensureStatus, r.ensureEnd,
	} {
		if err := phase(ctx, s); err != nil {
			return reconcile.Result{}, err
		}
		if s.gone {
			return reconcile.Result{}, nil
		}
	}
	return reconcile.Result{RequeueAfter: s.requeueAfter}, nil
}

// ensureStatus writes the status if it has changed.
func (r *reconciler) ensureStatus(ctx context.Context, s *offloadScope) error {
	status := offloadingStatus(s.offloading, s.name, s.providers, s.now)
	intent := offloadingapply.NamespaceOffloading(s.offloading.Name, s.offloading.Namespace).WithUID(s.offloading.UID).
		WithStatus(offloadingapply.NamespaceOffloadingStatus().WithRemoteNamespaceName(status.RemoteNamespaceName).
			WithOffloadingPhase(status.OffloadingPhase).WithObservedGeneration(status.ObservedGeneration).
			WithRemoteNamespacesConditions(status.RemoteNamespacesConditions))
	err := r.own.ApplyStatusTo(ctx, intent, s.offloading)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		s.gone = true
		return nil
	}
	return err
}

// everyOffloading maps an event to all offloaded namespaces.
func everyOffloading(reader client.Reader) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
		var all offloadingv1alpha1.NamespaceOffloadingList
		if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			log.FromContext(ctx).Error(err, "event not attributed to offloaded namespaces")
			return nil
		}
		for i := range all.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
		return requests
	}
}
