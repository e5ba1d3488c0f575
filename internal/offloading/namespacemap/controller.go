// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
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

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=get;list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=create;patch;delete
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings,verbs=get;list;watch
// +kubebuilder:rbac:groups=sharing.liqo.io,resources=resourceslices,verbs=list;watch
// +kubebuilder:rbac:groups=discovery.liqo.io,resources=foreignclusters,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// reconciler keeps, for each provider, the one NamespaceMap, of which it is the only writer. Its unit of work is a tenant namespace.
type reconciler struct {
	client  client.Client
	live    client.Reader
	own     *ssa.Applier
	options Options
}

// Options configures the controller.
type Options struct {
	// Domain is the DNS domain of this cluster, so that pods find Services in a provider by the names that these have here; empty if it is not known.
	Domain string
}

// Setup registers the controller that writes the desired remote namespaces of each provider.
func Setup(mgr manager.Manager, o Options) error {
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), options: o, own: ssa.NewApplier(mgr.GetClient(), labels.OwnerNamespaceMap)}
	original := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[labels.Replication] == "true" })
	its := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{requestOf(object.GetNamespace())}
	})
	everyTenant := func(ctx context.Context, _ client.Object) []reconcile.Request {
		return tenantsWhere(ctx, r.client, func(*sharingv1alpha1.ResourceSlice) bool { return true })
	}
	allTenants := handler.EnqueueRequestsFromMapFunc(everyTenant)
	ofNode := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		return tenantsWhere(ctx, r.client, func(slice *sharingv1alpha1.ResourceSlice) bool { return slice.Spec.NodeName == object.GetName() })
	})
	err := builder.ControllerManagedBy(mgr).Named("namespacemap").
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: kubemanager.RetryBackoff()}).
		Watches(&sharingv1alpha1.ResourceSlice{}, its, builder.WithPredicates(original)).
		Watches(&vkv1alpha1.NamespaceMap{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
			requests := []reconcile.Request{requestOf(object.GetNamespace())}
			if namespaceMap, ok := object.(*vkv1alpha1.NamespaceMap); ok && len(namespaceMap.Spec.CustomResources) > 0 {
				// Whether the status of custom resources comes back from a provider depends on the other ones.
				requests = append(requests, everyTenant(ctx, object)...)
			}
			return requests
		}), builder.WithPredicates(original, predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&offloadingv1alpha1.NamespaceOffloading{}, allTenants, builder.WithPredicates(offloadingChanged)).
		Watches(&discoveryv1alpha1.ForeignCluster{}, allTenants, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, ofNode, builder.WithPredicates(providers.NodeChanged)).
		Watches(&corev1.Namespace{}, allTenants, builder.WithPredicates(offloadedNamespace, predicate.LabelChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of namespace maps: %w", err)
	}
	return nil
}

// offloadingChanged passes updates that can change a map.
var offloadingChanged = predicate.Funcs{UpdateFunc: func(change event.UpdateEvent) bool {
	before, was := change.ObjectOld.(*offloadingv1alpha1.NamespaceOffloading)
	after, ok := change.ObjectNew.(*offloadingv1alpha1.NamespaceOffloading)
	return !was || !ok || before.Generation != after.Generation || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		before.Status.RemoteNamespaceName != after.Status.RemoteNamespaceName || before.UID != after.UID || apiServerSupport(before) != apiServerSupport(after)
}}

// offloadedNamespace passes namespaces that are offloaded: their labels decide which providers may receive them. The event of a namespace whose
// strategy is Local, which has no label of ours, is that of its NamespaceOffloading.
var offloadedNamespace = predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[labels.SchedulingEnabled] != "" })

// Reconcile writes the map of one tenant namespace.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	found, err := providers.List(ctx, r.client, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(found) == 0 {
		return reconcile.Result{}, r.orphans(ctx, request.Name)
	}
	p := &found[0]
	switch {
	case p.Leaving && p.Node == nil:
		return reconcile.Result{}, r.end(ctx, p)
	case p.Namespaces != nil && p.Namespaces.DeletionTimestamp != nil, p.Namespaces == nil && (p.Node == nil || p.Leaving):
		return reconcile.Result{}, nil // an event of the map, or of the node, follows
	}
	var all offloadingv1alpha1.NamespaceOffloadingList
	if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list offloaded namespaces: %w", err)
	}
	name := p.Name
	var live client.Object
	if p.Namespaces != nil {
		name, live = p.Namespaces.Name, p.Namespaces
	}
	// Not owned by the node: if an administrator deletes the node, it is registered again, and the remote namespaces must not be deleted with it.
	intent := vkapply.NamespaceMap(name, p.Tenant).
		WithLabels(map[string]string{
			labels.Replication: "true", labels.RemoteID: p.ID, labels.RemoteClusterID: p.ID, labels.ClusterID: p.ID, labels.AppPartOf: labels.PartOf,
		})
	if r.options.Domain != "" {
		intent.WithAnnotations(map[string]string{labels.ClusterDomain: r.options.Domain})
	}
	elsewhere, err := r.elsewhere(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	wanted := mapping(all.Items, p, elsewhere)
	if err := r.confirm(ctx, p, all.Items, wanted); err != nil {
		return reconcile.Result{}, err
	}
	if len(wanted.DesiredMapping) > 0 {
		// In one write, so that the virtual kubelet never reads one without the others.
		intent.WithSpec(vkapply.NamespaceMapSpec().WithDesiredMapping(wanted.DesiredMapping).
			WithWithoutAPIServer(wanted.WithoutAPIServer...).WithReferencedOnly(wanted.ReferencedOnly...).WithRunWithout(wanted.RunWithout).
			WithUnreachableTolerationSeconds(wanted.UnreachableTolerationSeconds).WithCustomResources(wanted.CustomResources))
	}
	if live != nil {
		intent.WithUID(live.GetUID())
	}
	err = r.own.ApplyTo(ctx, intent, live)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsConflict(err) {
		return reconcile.Result{}, nil // the event of the deletion, or of another map, follows
	}
	return reconcile.Result{}, err
}

// elsewhere returns whether providers other than p are asked for a namespace.
func (r *reconciler) elsewhere(ctx context.Context, p *provider.Provider) (func(namespace string) bool, error) {
	var all vkv1alpha1.NamespaceMapList
	if err := r.client.List(ctx, &all, client.MatchingLabels{labels.Replication: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list namespace maps: %w", err)
	}
	return func(namespace string) bool {
		return slices.ContainsFunc(all.Items, func(namespaceMap vkv1alpha1.NamespaceMap) bool {
			_, asked := namespaceMap.Spec.DesiredMapping[namespace]
			return asked && namespaceMap.Namespace != p.Tenant && namespaceMap.Labels[labels.Replicated] != "true" && namespaceMap.DeletionTimestamp == nil
		})
	}, nil
}

// confirm reads, for each namespace or kind to be removed from the map, the NamespaceOffloading from the API server. The provider deletes the remote namespace
// with everything in it, or the virtual kubelet the copies of the kind, and a cache that was just filled may be older than the state before.
func (r *reconciler) confirm(
	ctx context.Context, p *provider.Provider, cached []offloadingv1alpha1.NamespaceOffloading, wanted vkv1alpha1.NamespaceMapSpec,
) error {
	if p.Namespaces == nil {
		return nil
	}
	for namespace := range p.Namespaces.Spec.DesiredMapping {
		if _, stays := wanted.DesiredMapping[namespace]; stays && keepsKinds(p.Namespaces.Spec.CustomResources[namespace], wanted.CustomResources[namespace]) {
			continue
		}
		var now offloadingv1alpha1.NamespaceOffloading
		err := r.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: offloadingv1alpha1.NamespaceOffloadingName}, &now)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("check whether namespace %s is still offloaded: %w", namespace, err)
		}
		known := slices.ContainsFunc(cached, func(offloading offloadingv1alpha1.NamespaceOffloading) bool {
			return offloading.UID == now.UID && offloading.ResourceVersion == now.ResourceVersion
		})
		if err == nil && now.DeletionTimestamp == nil && !known {
			return fmt.Errorf("the cache is behind on the NamespaceOffloading of namespace %s; retrying", namespace)
		}
	}
	return nil
}

// keepsKinds reports whether each kind of before is also in after.
func keepsKinds(before, after []vkv1alpha1.ReflectedKind) bool {
	return !slices.ContainsFunc(before, func(was vkv1alpha1.ReflectedKind) bool {
		return !slices.ContainsFunc(after, func(is vkv1alpha1.ReflectedKind) bool { return is.APIVersion == was.APIVersion && is.Kind == was.Kind })
	})
}

// end deletes the map of a provider whose virtual node is gone. It reads the node live, because the cache may miss one.
func (r *reconciler) end(ctx context.Context, p *provider.Provider) error {
	if p.Namespaces == nil || p.Namespaces.DeletionTimestamp != nil {
		return nil
	}
	if node, err := providers.NodeOf(ctx, r.live, p.NodeName, p.ID); err != nil || node != nil {
		return err
	}
	return r.remove(ctx, p.Namespaces)
}

// orphans deletes maps without a ResourceSlice of ours.
func (r *reconciler) orphans(ctx context.Context, tenant string) error {
	var all vkv1alpha1.NamespaceMapList
	mine := client.MatchingLabels{labels.Replication: "true"}
	if err := r.client.List(ctx, &all, client.InNamespace(tenant), mine); err != nil {
		return fmt.Errorf("list namespace maps in %s: %w", tenant, err)
	}
	for i := range all.Items {
		namespaceMap := &all.Items[i]
		if namespaceMap.Labels[labels.Replicated] == "true" || namespaceMap.DeletionTimestamp != nil {
			continue
		}
		var requests sharingv1alpha1.ResourceSliceList
		if err := r.live.List(ctx, &requests, client.InNamespace(tenant), mine); err != nil {
			return fmt.Errorf("list resource slices in %s: %w", tenant, err)
		}
		if len(requests.Items) > 0 {
			return nil // its ForeignCluster is not in the cache yet
		}
		if err := r.remove(ctx, namespaceMap); err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciler) remove(ctx context.Context, namespaceMap *vkv1alpha1.NamespaceMap) error {
	log.FromContext(ctx).Info("namespace map deleted", "namespace", namespaceMap.Namespace, "name", namespaceMap.Name)
	r.own.Forget(client.ObjectKeyFromObject(namespaceMap))
	err := r.client.Delete(ctx, namespaceMap, client.Preconditions{UID: &namespaceMap.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete namespace map %s/%s: %w", namespaceMap.Namespace, namespaceMap.Name, err)
	}
	return nil
}

// tenantsWhere returns requests for the tenant namespaces of the slices that about selects.
func tenantsWhere(ctx context.Context, reader client.Reader, about func(*sharingv1alpha1.ResourceSlice) bool) (requests []reconcile.Request) {
	var all sharingv1alpha1.ResourceSliceList
	if err := reader.List(ctx, &all, client.MatchingLabels{labels.Replication: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "event not attributed to a tenant")
		return nil
	}
	for i := range all.Items {
		if about(&all.Items[i]) {
			requests = append(requests, requestOf(all.Items[i].Namespace))
		}
	}
	return requests
}

func requestOf(tenant string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: tenant}}
}
