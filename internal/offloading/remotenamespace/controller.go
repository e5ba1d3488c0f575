// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	psa "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/finalizer"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/peers"
)

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;delete
// +kubebuilder:rbac:groups="",resources=resourcequotas;limitranges,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-remote,groups="",resources=resourcequotas;limitranges,verbs=create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-remote,groups=networking.k8s.io,resources=networkpolicies,verbs=create;patch;delete
// +kubebuilder:rbac:groups=net.liqo.io,resources=tunnelendpoints,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-virtual-kubelet-remote;liqo-controller-manager-remote,verbs=bind

const (
	// remoteRole has the rights of a consumer in its remote namespaces.
	remoteRole = "liqo-virtual-kubelet-remote"
	// peerAccount is the service account of a consumer in its tenant namespace. Package tenant creates it.
	peerAccount = "liqo-peer"
	// managerRole has our own rights in remote namespaces, and nowhere else: to write pods.
	managerRole = "liqo-controller-manager-remote"
	// managerAccount is our service account in the namespace of Liqo, and the name of our role binding.
	managerAccount = "liqo-controller-manager"
)

// reconciler creates the namespaces that consumers request. It reconciles tenant namespaces, because a consumer may write many
// maps, of which one counts.
type reconciler struct {
	options Options
	client  client.Client
	live    client.Reader
	own     *ssa.Applier
	// most bounds the remote namespaces of one consumer.
	most int
}

// Setup registers the controller of remote namespaces. The manager's cache must have all namespaces, and the RoleBindings, ResourceQuotas,
// LimitRanges and NetworkPolicies that are labelled as part of Liqo.
func Setup(mgr manager.Manager, o Options) error {
	r := &reconciler{
		options: o, client: mgr.GetClient(), live: mgr.GetAPIReader(), own: ssa.NewApplier(mgr.GetClient(), labels.OwnerRemoteNamespaces),
		most: cmp.Or(o.Most, maxRemoteNamespaces),
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &vkv1alpha1.NamespaceMap{}, requestedName, requestedNames); err != nil {
		return fmt.Errorf("index namespace maps by the requested names: %w", err)
	}
	copies := predicate.NewPredicateFuncs(isCopy)
	controllers := builder.ControllerManagedBy(mgr).Named("remotenamespaces").
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: kubemanager.RetryBackoff()}).
		Watches(&vkv1alpha1.NamespaceMap{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
			return []reconcile.Request{tenantRequest(object.GetNamespace())}
		}), builder.WithPredicates(copies)).
		Watches(&discoveryv1alpha1.ForeignCluster{}, handler.EnqueueRequestsFromMapFunc(ofForeignCluster)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace)).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(r.ofBinding)).
		Watches(&corev1.ResourceQuota{}, handler.EnqueueRequestsFromMapFunc(r.ofContent), builder.WithPredicates(boundsChanged)).
		WatchesMetadata(claimMetadata(), handler.EnqueueRequestsFromMapFunc(r.ofContent), builder.WithPredicates(deletions)).
		Watches(&vkv1alpha1.ShadowPod{}, handler.EnqueueRequestsFromMapFunc(r.ofContent), builder.WithPredicates(deletions)).
		Watches(&corev1.LimitRange{}, handler.EnqueueRequestsFromMapFunc(r.ofContent), builder.WithPredicates(boundsChanged)).
		Watches(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(r.ofContent), builder.WithPredicates(boundsChanged))
	o.Isolation.watch(controllers, handler.EnqueueRequestsFromMapFunc(r.everyTenant))
	o.Policies.Watch(controllers, handler.EnqueueRequestsFromMapFunc(r.everyTenant))
	if err := controllers.Complete(r); err != nil {
		return fmt.Errorf("set up controller of remote namespaces: %w", err)
	}
	return nil
}

// requestedName is the index of NamespaceMaps by the names of the remote namespaces that they request. Without it, each event of a namespace would
// visit each entry of each map, and peers decide how many these are.
const requestedName = "spec.desiredMapping"

func requestedNames(object client.Object) []string {
	namespaceMap, ok := object.(*vkv1alpha1.NamespaceMap)
	if !ok || !isCopy(object) {
		return nil
	}
	return slices.Compact(slices.Sorted(maps.Values(namespaceMap.Spec.DesiredMapping)))
}

func isCopy(object client.Object) bool { return object.GetLabels()[labels.Replicated] == "true" }

// ofNamespace maps a namespace to its tenant, and to those that wait for its name.
func (r *reconciler) ofNamespace(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	if object.GetLabels()[labels.TenantNamespace] == "true" {
		requests = append(requests, tenantRequest(object.GetName()))
	}
	if tenant, _, ours := strings.Cut(object.GetAnnotations()[labels.ManagedByNamespaceMap], "/"); ours {
		requests = append(requests, tenantRequest(tenant))
	}
	var all vkv1alpha1.NamespaceMapList
	if err := r.client.List(ctx, &all, client.MatchingFields{requestedName: object.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "event not attributed to a namespace map")
		return requests
	}
	for i := range all.Items {
		requests = append(requests, tenantRequest(all.Items[i].Namespace))
	}
	return requests
}

// ofBinding maps a role binding to the tenant in whose remote namespace it is.
func (r *reconciler) ofBinding(ctx context.Context, object client.Object) []reconcile.Request {
	binding, ok := object.(*rbacv1.RoleBinding)
	switch {
	case !ok:
		return nil
	case binding.RoleRef.Name == remoteRole:
		return []reconcile.Request{tenantRequest(binding.Name)}
	case binding.RoleRef.Name != managerRole:
		return nil
	}
	return r.ofContent(ctx, object)
}

// ofContent maps an object in a remote namespace to its tenant.
func (r *reconciler) ofContent(ctx context.Context, object client.Object) []reconcile.Request {
	var namespace corev1.Namespace
	if err := r.client.Get(ctx, client.ObjectKey{Name: object.GetNamespace()}, &namespace); err != nil {
		return nil // the namespace is gone
	}
	tenant, _, ours := strings.Cut(namespace.Annotations[labels.ManagedByNamespaceMap], "/")
	if !ours {
		return nil
	}
	return []reconcile.Request{tenantRequest(tenant)}
}

// Reconcile brings the remote namespaces of one tenant to their desired state.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var tenant corev1.Namespace
	switch err := r.client.Get(ctx, client.ObjectKey{Name: request.Name}, &tenant); {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, r.orphans(ctx, request.Name)
	case err != nil:
		return reconcile.Result{}, err
	}
	// The tenant namespace identifies the consumer. Its map is not trusted.
	consumer := tenant.Labels[labels.ClusterID]
	if tenant.Labels[labels.TenantNamespace] != "true" || consumer == "" {
		return reconcile.Result{}, nil
	}
	all, err := r.maps(ctx, r.client, tenant.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := mapOwner{consumer: consumer, tenant: tenant.Name, install: r.options.Namespace, most: r.most, names: r.options.Names}
	if p.others, err = r.others(ctx, tenant.Name); err != nil {
		return reconcile.Result{}, err
	}
	for i := range all[min(len(all), 1):] {
		if err := r.release(ctx, &all[i+1]); err != nil { // an earlier one that counted
			return reconcile.Result{}, err
		}
	}
	fc, err := peers.ForeignCluster(ctx, r.client, consumer)
	if err != nil {
		return reconcile.Result{}, err
	}
	p.ended = fc == nil || !fc.Keeps()
	if len(all) == 0 {
		return reconcile.Result{}, r.forget(ctx, p)
	}
	p.mapName = all[0].Name
	if fc == nil || !fc.Accepts() {
		p.most = 0 // nothing new
	}
	if fc != nil {
		p.fingerprint = fc.Spec.ClusterKey
	}
	if p.isolation, err = r.isolation(ctx, consumer); err != nil {
		return reconcile.Result{}, err
	}
	if p.closed, err = r.options.Policies.Missing(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if all[0].DeletionTimestamp != nil || tenant.DeletionTimestamp != nil || fc != nil && !fc.Keeps() {
		return reconcile.Result{}, r.finish(ctx, p, &all[0])
	}
	return reconcile.Result{}, r.follow(ctx, p, &all[0])
}

// remoteNamespacesOf returns all namespaces created for the consumer.
func (r *reconciler) remoteNamespacesOf(ctx context.Context, reader client.Reader, p mapOwner) (all []corev1.Namespace, err error) {
	var list corev1.NamespaceList
	if err := reader.List(ctx, &list, client.MatchingLabels{labels.RemoteClusterID: p.consumer}); err != nil {
		return nil, fmt.Errorf("list namespaces of cluster %s: %w", p.consumer, err)
	}
	for i := range list.Items {
		if p.keeps(&list.Items[i]) {
			all = append(all, list.Items[i])
		}
	}
	return all, nil
}

// follow brings the remote namespaces to the state that the map requests, and answers in its status.
func (r *reconciler) follow(ctx context.Context, p mapOwner, namespaceMap *vkv1alpha1.NamespaceMap) error {
	existing, err := r.existing(ctx, p, namespaceMap)
	if err != nil {
		return err
	}
	wanted, unwanted := planRemoteNamespaces(p, namespaceMap.Spec.DesiredMapping, existing)
	if len(wanted)+len(existing) > 0 {
		if held, err := finalizer.Patch(ctx, r.client, namespaceMap, labels.FinalizerNamespaceMap, controllerutil.AddFinalizer); err != nil || !held {
			return err
		}
	}
	var failures []error // the failure of one namespace must not stop the others
	for i := range wanted {
		wanted[i].before = namespaceMap.Status.CurrentMapping[wanted[i].local].Phase
		failures = append(failures, r.make(ctx, p, &wanted[i]))
	}
	answers := map[string]vkapply.RemoteNamespaceStatusApplyConfiguration{}
	for _, namespace := range wanted {
		answer := vkapply.RemoteNamespaceStatus().WithRemoteNamespace(namespace.answer.RemoteNamespace).WithPhase(namespace.answer.Phase)
		if namespace.answer.Message != "" {
			answer.WithMessage(namespace.answer.Message)
		}
		answers[namespace.local] = *answer
	}
	for _, namespace := range unwanted {
		if namespace.Annotations[labels.KeptForData] != "" {
			continue // it stays, and is no remote namespace any more
		}
		if local := namespace.Annotations[labels.OriginalName]; answers[local].Phase == nil && len(answers) < maxAnswers+r.most {
			answers[local] = *vkapply.RemoteNamespaceStatus().WithRemoteNamespace(namespace.Name).WithPhase(vkv1alpha1.MappingTerminating)
		}
	}
	if len(answers)+len(namespaceMap.Status.CurrentMapping) == 0 {
		return errors.Join(append(failures, r.remove(ctx, p, namespaceMap, unwanted))...)
	}
	intent := vkapply.NamespaceMap(namespaceMap.Name, namespaceMap.Namespace).WithUID(namespaceMap.UID)
	if len(answers) > 0 { // the API server turns a status that becomes empty into null, and refuses it
		intent.WithStatus(vkapply.NamespaceMapStatus().WithCurrentMapping(answers))
	}
	if err := r.own.ApplyStatusTo(ctx, intent, namespaceMap); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		failures = append(failures, err)
	}
	return errors.Join(append(failures, r.remove(ctx, p, namespaceMap, unwanted))...)
}

// existing returns the namespaces that have a requested name, or were created for the consumer.
func (r *reconciler) existing(ctx context.Context, p mapOwner, namespaceMap *vkv1alpha1.NamespaceMap) (map[string]*corev1.Namespace, error) {
	all, err := r.remoteNamespacesOf(ctx, r.client, p)
	if err != nil {
		return nil, err
	}
	found := map[string]*corev1.Namespace{}
	for i := range all {
		found[all[i].Name] = &all[i]
	}
	for _, name := range namespaceMap.Spec.DesiredMapping {
		var namespace corev1.Namespace
		if found[name] != nil || p.refuses(name) != "" {
			continue
		}
		switch err := r.client.Get(ctx, client.ObjectKey{Name: name}, &namespace); {
		case err == nil:
			found[name] = &namespace
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("look for namespace %s: %w", name, err)
		}
	}
	return found, nil
}

// make creates a remote namespace, and the consumer's rights in it. It never changes an existing namespace.
func (r *reconciler) make(ctx context.Context, p mapOwner, t *remoteNamespace) error {
	if t.create {
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:        t.remote,
			Labels:      map[string]string{labels.RemoteClusterID: p.consumer, labels.AppPartOf: labels.PartOf},
			Annotations: map[string]string{labels.ManagedByNamespaceMap: p.key(), labels.OriginalName: t.local},
		}}
		if p.fingerprint != "" {
			made.Annotations[labels.OwnerKey] = p.fingerprint
		}
		if r.options.Level != "" {
			made.Labels[psa.EnforceLevelLabel] = string(r.options.Level)
		}
		err := r.client.Create(ctx, made, client.FieldOwner(labels.OwnerRemoteNamespaces))
		switch {
		case apierrors.IsAlreadyExists(err):
			// It is not in the cache yet: it may be the one that we have just created.
			t.live = made
			if err := r.live.Get(ctx, client.ObjectKey{Name: t.remote}, made); err != nil {
				return fmt.Errorf("read namespace %s: %w", t.remote, err)
			}
			t.decide(p, 1)
			if t.answer.Phase != vkv1alpha1.MappingAccepted {
				return nil
			}
			return r.bind(ctx, p, t)
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			t.answer.Phase = vkv1alpha1.MappingCreationLoopBackOff
			t.answer.Message = "the provider's API server refuses namespace " + t.remote + "; see the logs of the provider's Deployment liqo-controller-manager"
			return fmt.Errorf("create namespace %s: %w", t.remote, err)
		case err != nil:
			return fmt.Errorf("create namespace %s: %w", t.remote, err)
		}
		log.FromContext(ctx).Info("remote namespace created", "namespace", t.remote, "clusterID", p.consumer)
		t.live = made
	}
	if t.answer.Phase != vkv1alpha1.MappingAccepted {
		return nil
	}
	if t.live != nil && (t.live.Annotations[labels.KeptForData] != "" || p.fingerprint != "" && t.live.Annotations[labels.OwnerKey] != p.fingerprint) {
		if err := r.markKept(ctx, p, t.live, ""); err != nil {
			return err
		}
	}
	return r.bind(ctx, p, t)
}

// remove deletes remote namespaces that the map no longer requests. It reads the map live, because the cache may be old, and everything in the
// namespace is deleted with it.
func (r *reconciler) remove(ctx context.Context, p mapOwner, namespaceMap *vkv1alpha1.NamespaceMap, unwanted []*corev1.Namespace) error {
	if len(unwanted) == 0 {
		return nil
	}
	var live vkv1alpha1.NamespaceMap
	switch err := r.live.Get(ctx, client.ObjectKeyFromObject(namespaceMap), &live); {
	case apierrors.IsNotFound(err):
		return nil // the event of its deletion follows
	case err != nil:
		return fmt.Errorf("read namespace map %s: %w", p.key(), err)
	}
	for _, namespace := range unwanted {
		if p.wants(live.Spec.DesiredMapping, namespace) {
			continue
		}
		if err := r.delete(ctx, p, namespace); err != nil {
			return err
		}
	}
	return nil
}

func tenantRequest(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}}
}

// ofForeignCluster maps a ForeignCluster to its tenant namespace.
func ofForeignCluster(_ context.Context, object client.Object) []reconcile.Request {
	fc, ok := object.(*discoveryv1alpha1.ForeignCluster)
	if !ok || fc.Status.TenantNamespace.Local == "" {
		return nil
	}
	return []reconcile.Request{tenantRequest(fc.Status.TenantNamespace.Local)}
}
