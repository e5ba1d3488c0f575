// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
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
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/ssa"
)

// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=virtualkubelet.liqo.io,resources=namespacemaps/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-virtual-kubelet-remote;liqo-controller-manager-twin,verbs=bind

const (
	// remoteRole is what a consumer may do in its twins.
	remoteRole = "liqo-virtual-kubelet-remote"
	// peerAccount is who a consumer is, in its tenant namespace. Package tenant makes it.
	peerAccount = "liqo-peer"
	// managerRole is what we ourselves may do in twins, and nowhere else: make pods.
	managerRole = "liqo-controller-manager-twin"
	// managerAccount is who we are, in the namespace of this product; our role binding is called so, too.
	managerAccount = "liqo-controller-manager"
)

// twinReconciler makes the namespaces that consumers ask for. Its unit of work is a tenant namespace: a consumer may write as many maps as
// it likes, and one of them counts.
type twinReconciler struct {
	install string
	client  client.Client
	live    client.Reader
	own     *ssa.Applier
}

// SetupRemoteNamespaces registers the controller of twin namespaces. install is the namespace of this product. The manager's cache must have all
// namespaces, and RoleBindings that are labelled as part of this product.
func SetupRemoteNamespaces(mgr manager.Manager, install string) error {
	r := &twinReconciler{install: install, client: mgr.GetClient(), live: mgr.GetAPIReader(), own: ssa.NewApplier(mgr.GetClient(), labels.OwnerRemoteNamespaces)}
	copies := predicate.NewPredicateFuncs(isCopy)
	err := builder.ControllerManagedBy(mgr).Named("twins").
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: patience()}).
		Watches(&vkv1alpha1.NamespaceMap{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
			return []reconcile.Request{tenantRequest(object.GetNamespace())}
		}), builder.WithPredicates(copies)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.ofNamespace)).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(r.ofBinding)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up controller of twin namespaces: %w", err)
	}
	return nil
}

func isCopy(object client.Object) bool { return object.GetLabels()[labels.Replicated] == "true" }

// ofNamespace finds the tenants that a namespace matters to: its own, and those that wait for its name.
func (r *twinReconciler) ofNamespace(ctx context.Context, object client.Object) (requests []reconcile.Request) {
	if object.GetLabels()[labels.TenantNamespace] == "true" {
		requests = append(requests, tenantRequest(object.GetName()))
	}
	if tenant, _, ours := strings.Cut(object.GetAnnotations()[labels.ManagedByNamespaceMap], "/"); ours {
		requests = append(requests, tenantRequest(tenant))
	}
	var all vkv1alpha1.NamespaceMapList
	if err := r.client.List(ctx, &all, client.MatchingLabels{labels.Replicated: "true"}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "event not attributed to a namespace map")
		return requests
	}
	for i := range all.Items {
		for _, name := range all.Items[i].Spec.DesiredMapping {
			if name == object.GetName() {
				requests = append(requests, tenantRequest(all.Items[i].Namespace))
				break
			}
		}
	}
	return requests
}

// ofBinding finds the tenant whose twin a role binding is in.
func (r *twinReconciler) ofBinding(ctx context.Context, object client.Object) []reconcile.Request {
	binding, ok := object.(*rbacv1.RoleBinding)
	switch {
	case !ok:
		return nil
	case binding.RoleRef.Name == remoteRole:
		return []reconcile.Request{tenantRequest(binding.Name)}
	case binding.RoleRef.Name != managerRole:
		return nil
	}
	var twin corev1.Namespace
	if err := r.client.Get(ctx, client.ObjectKey{Name: binding.Namespace}, &twin); err != nil {
		return nil // it is gone
	}
	tenant, _, ours := strings.Cut(twin.Annotations[labels.ManagedByNamespaceMap], "/")
	if !ours {
		return nil
	}
	return []reconcile.Request{tenantRequest(tenant)}
}

// Reconcile looks at one tenant namespace.
func (r *twinReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var tenant corev1.Namespace
	switch err := r.client.Get(ctx, client.ObjectKey{Name: request.Name}, &tenant); {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, r.orphans(ctx, request.Name)
	case err != nil:
		return reconcile.Result{}, err
	}
	// Who the consumer is, we know; what its map says of it is not asked.
	consumer := tenant.Labels[labels.ClusterID]
	if tenant.Labels[labels.TenantNamespace] != "true" || consumer == "" {
		return reconcile.Result{}, nil
	}
	all, err := r.maps(ctx, r.client, tenant.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	p := place{consumer: consumer, tenant: tenant.Name, install: r.install}
	if p.others, err = r.others(ctx, tenant.Name); err != nil {
		return reconcile.Result{}, err
	}
	for i := range all[min(len(all), 1):] {
		if err := r.release(ctx, &all[i+1]); err != nil { // one that counted before
			return reconcile.Result{}, err
		}
	}
	if len(all) == 0 {
		return reconcile.Result{}, r.forget(ctx, p)
	}
	p.mapName = all[0].Name
	if all[0].DeletionTimestamp != nil || tenant.DeletionTimestamp != nil {
		return reconcile.Result{}, r.finish(ctx, p, &all[0])
	}
	return reconcile.Result{}, r.follow(ctx, p, &all[0])
}

// maps of the consumer, the one that counts first: the oldest.
func (r *twinReconciler) maps(ctx context.Context, reader client.Reader, tenant string) ([]vkv1alpha1.NamespaceMap, error) {
	var all vkv1alpha1.NamespaceMapList
	if err := reader.List(ctx, &all, client.InNamespace(tenant), client.MatchingLabels{labels.Replicated: "true"}); err != nil {
		return nil, fmt.Errorf("list namespace maps in %s: %w", tenant, err)
	}
	slices.SortFunc(all.Items, func(a, b vkv1alpha1.NamespaceMap) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all.Items, nil
}

// twinsOf are all namespaces made for the consumer.
func (r *twinReconciler) twinsOf(ctx context.Context, reader client.Reader, p place) (all []corev1.Namespace, err error) {
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

// follow brings the twins to what the map says.
func (r *twinReconciler) follow(ctx context.Context, p place, wish *vkv1alpha1.NamespaceMap) error {
	existing, err := r.existing(ctx, p, wish)
	if err != nil {
		return err
	}
	wanted, unwanted := twins(p, wish.Spec.DesiredMapping, existing)
	if len(wanted)+len(existing) > 0 {
		if held, err := r.patchFinalizer(ctx, wish, controllerutil.AddFinalizer); err != nil || !held {
			return err
		}
	}
	var failures []error // of one, which must not be the others'
	for i := range wanted {
		wanted[i].before = wish.Status.CurrentMapping[wanted[i].local].Phase
		failures = append(failures, r.make(ctx, p, &wanted[i]))
	}
	answers := map[string]vkapply.RemoteNamespaceStatusApplyConfiguration{}
	for _, one := range wanted {
		answer := vkapply.RemoteNamespaceStatus().WithRemoteNamespace(one.answer.RemoteNamespace).WithPhase(one.answer.Phase)
		if one.answer.Message != "" {
			answer.WithMessage(one.answer.Message)
		}
		answers[one.local] = *answer
	}
	for _, one := range unwanted {
		if local := one.Annotations[labels.OriginalName]; answers[local].Phase == nil && len(answers) < mostAnswers+mostTwins {
			answers[local] = *vkapply.RemoteNamespaceStatus().WithRemoteNamespace(one.Name).WithPhase(vkv1alpha1.MappingTerminating)
		}
	}
	if len(answers)+len(wish.Status.CurrentMapping) == 0 {
		return errors.Join(failures...)
	}
	intent := vkapply.NamespaceMap(wish.Name, wish.Namespace).WithUID(wish.UID)
	if len(answers) > 0 { // of an empty status that was not empty, an API server makes null, and refuses it
		intent.WithStatus(vkapply.NamespaceMapStatus().WithCurrentMapping(answers))
	}
	if err := r.own.ApplyStatusTo(ctx, intent, wish); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		failures = append(failures, err)
	}
	return errors.Join(append(failures, r.remove(ctx, p, wish, unwanted))...)
}

// existing namespaces that the map is about, or that were made for the consumer.
func (r *twinReconciler) existing(ctx context.Context, p place, wish *vkv1alpha1.NamespaceMap) (map[string]*corev1.Namespace, error) {
	all, err := r.twinsOf(ctx, r.client, p)
	if err != nil {
		return nil, err
	}
	found := map[string]*corev1.Namespace{}
	for i := range all {
		found[all[i].Name] = &all[i]
	}
	for _, name := range wish.Spec.DesiredMapping {
		var one corev1.Namespace
		if found[name] != nil || p.refuses(name) != "" {
			continue
		}
		switch err := r.client.Get(ctx, client.ObjectKey{Name: name}, &one); {
		case err == nil:
			found[name] = &one
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("look for namespace %s: %w", name, err)
		}
	}
	return found, nil
}

// make creates a twin, and the consumer's right in it. It never changes a namespace that is there.
func (r *twinReconciler) make(ctx context.Context, p place, t *twin) error {
	if t.create {
		made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:        t.remote,
			Labels:      map[string]string{labels.RemoteClusterID: p.consumer, labels.AppPartOf: labels.PartOf},
			Annotations: map[string]string{labels.ManagedByNamespaceMap: p.key(), labels.OriginalName: t.local},
		}}
		err := r.client.Create(ctx, made, client.FieldOwner(labels.OwnerRemoteNamespaces))
		switch {
		case apierrors.IsAlreadyExists(err):
			// Unknown to the cache: it may be the one that we have just made.
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
			t.answer.Message = "the provider's API server refuses namespace " + t.remote + "; the reason is in the logs of its Deployment liqo-controller-manager"
			return fmt.Errorf("create namespace %s: %w", t.remote, err)
		case err != nil:
			return fmt.Errorf("create namespace %s: %w", t.remote, err)
		}
		log.FromContext(ctx).Info("twin made", "namespace", t.remote, "clusterID", p.consumer)
		t.live = made
	}
	if t.answer.Phase != vkv1alpha1.MappingAccepted {
		return nil
	}
	return r.bind(ctx, p, t)
}

// bind gives rights in a twin: first to ourselves, as the consumer begins to ask for pods as soon as it may.
func (r *twinReconciler) bind(ctx context.Context, p place, t *twin) error {
	for _, one := range []struct{ name, role, account, namespace string }{
		{managerAccount, managerRole, managerAccount, p.install},
		{p.tenant, remoteRole, peerAccount, p.tenant},
	} {
		intent := rbacapply.RoleBinding(one.name, t.remote).
			WithLabels(map[string]string{labels.AppPartOf: labels.PartOf, labels.ClusterID: p.consumer}).
			WithRoleRef(clusterRole(one.role)).
			WithSubjects(rbacapply.Subject().WithKind("ServiceAccount").WithName(one.account).WithNamespace(one.namespace))
		err := r.bindOne(ctx, intent)
		switch {
		case err == nil:
			continue
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			t.answer.Phase = vkv1alpha1.MappingTerminating
			return nil
		case apierrors.IsInvalid(err): // somebody bound another role under that name, which cannot be changed
			t.answer.Phase = vkv1alpha1.MappingCreationLoopBackOff
			t.answer.Message = fmt.Sprintf("role binding %s in namespace %s of the provider is not ours; ask for its removal there", one.name, t.remote)
		case t.before != vkv1alpha1.MappingAccepted: // without rights it is of no use
			t.answer.Phase = vkv1alpha1.MappingCreationLoopBackOff
			t.answer.Message = "the provider could not give rights in namespace " + t.remote + " and tries again; the reason is in the logs of its Deployment liqo-controller-manager"
		}
		return err
	}
	return nil
}

func (r *twinReconciler) bindOne(ctx context.Context, intent *rbacapply.RoleBindingApplyConfiguration) error {
	key := client.ObjectKey{Namespace: *intent.Namespace, Name: *intent.Name}
	var there rbacv1.RoleBinding
	var live client.Object
	switch err := r.client.Get(ctx, key, &there); {
	case err == nil:
		live = &there
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for role binding %s: %w", key, err)
	}
	return r.own.ApplyTo(ctx, intent, live)
}

// remove deletes twins that the map does not want any more. A cache may show what was long ago, and with a twin goes all that runs in
// it: so the API server is asked whether the map really does not.
func (r *twinReconciler) remove(ctx context.Context, p place, wish *vkv1alpha1.NamespaceMap, unwanted []*corev1.Namespace) error {
	if len(unwanted) == 0 {
		return nil
	}
	var live vkv1alpha1.NamespaceMap
	switch err := r.live.Get(ctx, client.ObjectKeyFromObject(wish), &live); {
	case apierrors.IsNotFound(err):
		return nil // its end brings us back
	case err != nil:
		return fmt.Errorf("read namespace map %s: %w", p.key(), err)
	}
	for _, one := range unwanted {
		if p.wants(live.Spec.DesiredMapping, one) {
			continue
		}
		if err := r.delete(ctx, p, one); err != nil {
			return err
		}
	}
	return nil
}

func (r *twinReconciler) delete(ctx context.Context, p place, one *corev1.Namespace) error {
	if one.DeletionTimestamp != nil {
		return nil
	}
	log.FromContext(ctx).Info("twin deleted", "namespace", one.Name, "clusterID", p.consumer)
	r.own.Forget(client.ObjectKey{Namespace: one.Name, Name: p.tenant})
	r.own.Forget(client.ObjectKey{Namespace: one.Name, Name: managerAccount})
	err := r.client.Delete(ctx, one, client.Preconditions{UID: &one.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete namespace %s: %w", one.Name, err)
	}
	return nil
}

// patchFinalizer says false if somebody else wrote first: then an event is on its way.
func (r *twinReconciler) patchFinalizer(ctx context.Context, wish *vkv1alpha1.NamespaceMap, change func(client.Object, string) bool) (bool, error) {
	before := wish.DeepCopy()
	if !change(wish, labels.FinalizerNamespaceMap) {
		return true, nil
	}
	err := r.client.Patch(ctx, wish, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("finalizer of namespace map %s/%s: %w", wish.Namespace, wish.Name, err)
	}
	return true, nil
}
