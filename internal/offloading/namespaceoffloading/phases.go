// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/apis/reasons"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	"liqo.io/liqo/internal/kube/finalizer"
	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/offloading/kubelet"
	"liqo.io/liqo/internal/offloading/provider"
	"liqo.io/liqo/internal/offloading/providers"
	"liqo.io/liqo/internal/offloading/remotename"
)

// offloadedRole is what virtual kubelets may do in offloaded namespaces.
const offloadedRole = "liqo-virtual-kubelet-offloaded"

var phaseChanged = predicate.Funcs{UpdateFunc: func(change event.UpdateEvent) bool {
	before, was := change.ObjectOld.(*sharingv1alpha1.ResourceSlice)
	after, ok := change.ObjectNew.(*sharingv1alpha1.ResourceSlice)
	return !was || !ok || provider.Wanted(before) != provider.Wanted(after)
}}

func (r *reconciler) observe(ctx context.Context, s *offloadScope) (err error) {
	s.name = s.offloading.Status.RemoteNamespaceName
	if s.name == "" {
		s.name = remotename.Of(s.offloading.Namespace, s.offloading.Spec.NamespaceMappingStrategy, r.options.Local)
	}
	if s.namespace, err = r.namespace(ctx, s.offloading.Namespace); err != nil {
		return err
	}
	if s.providers, err = providers.List(ctx, r.client, ""); err != nil {
		return err
	}
	r.reportUnaccepted(s)
	if fault := provider.CheckSelector(&s.offloading.Spec.ClusterSelector); fault != "" {
		if before, _ := r.faulty.Swap(s.offloading.UID, s.offloading.Generation); before != s.offloading.Generation {
			r.events.Eventf(s.offloading, nil, corev1.EventTypeWarning, reasons.Invalid, "Select", "%s", printable.Note(fault))
		}
	}
	return nil
}

// reportUnaccepted sends one event for each provider that would be chosen by labels that are not accepted, and another one when these labels change.
func (r *reconciler) reportUnaccepted(s *offloadScope) {
	for i := range s.providers {
		key := string(s.offloading.UID) + "/" + s.providers[i].ID
		sentence := provider.NotAccepted(s.offloading, &s.providers[i])
		if sentence == "" {
			r.unaccepted.Delete(key)
		} else if before, _ := r.unaccepted.Swap(key, sentence); before != sentence {
			r.events.Eventf(s.offloading, nil, corev1.EventTypeWarning, reasons.LabelsNotAccepted, "Select", "%s", printable.Note(sentence))
		}
	}
}

func (r *reconciler) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	switch err := r.client.Get(ctx, client.ObjectKey{Name: name}, &namespace); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for namespace %s: %w", name, err)
	}
	return &namespace, nil
}

// ensureFinalizer runs before any phase that creates something to clean up.
func (r *reconciler) ensureFinalizer(ctx context.Context, s *offloadScope) error {
	if s.offloading.DeletionTimestamp != nil {
		s.gone = !controllerutil.ContainsFinalizer(s.offloading, labels.FinalizerNamespaceOffloading)
		return nil
	}
	written, err := finalizer.Patch(ctx, r.client, s.offloading, labels.FinalizerNamespaceOffloading, controllerutil.AddFinalizer)
	s.gone = err == nil && !written
	return err
}

// ensureLabel makes pods of the namespace pass the webhook, unless they stay in this cluster.
func (r *reconciler) ensureLabel(ctx context.Context, s *offloadScope) error {
	if s.namespace == nil {
		return nil
	}
	return r.label(ctx, s.namespace, s.offloading.DeletionTimestamp == nil && s.offloading.Spec.PodOffloadingStrategy != offloadingv1alpha1.PodsLocal)
}

func (r *reconciler) label(ctx context.Context, namespace *corev1.Namespace, on bool) error {
	// With its UID: an apply to a namespace that was just deleted would create another one.
	intent := coreapply.Namespace(namespace.Name).WithUID(namespace.UID)
	if on {
		intent.WithLabels(map[string]string{labels.SchedulingEnabled: "true"})
	} else if namespace.Labels[labels.SchedulingEnabled] == "" || !isOurLabel(namespace) {
		return nil
	}
	err := r.own.ApplyTo(ctx, intent, namespace)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// kubeletBinding lets the virtual kubelet of a provider read the objects of an offloaded namespace.
func kubeletBinding(p *provider.Provider, namespace string) *rbacapply.RoleBindingApplyConfiguration {
	return rbacapply.RoleBinding(kubelet.BindingPrefix+p.Name, namespace).
		WithLabels(map[string]string{
			labels.AppName: kubelet.Name, labels.AppComponent: kubelet.Name, labels.AppPartOf: labels.PartOf,
			labels.AppManagedBy: kubelet.ManagedByName, labels.ClusterID: p.ID,
		}).
		WithRoleRef(kubelet.ClusterRole(offloadedRole)).
		WithSubjects(rbacapply.Subject().WithKind("ServiceAccount").WithName(kubelet.Name).WithNamespace(p.Tenant))
}

// ensureBindings binds the rights of virtual kubelets before the first remote namespace is requested, and removes them after the last is gone.
func (r *reconciler) ensureBindings(ctx context.Context, s *offloadScope) error {
	bindings, err := r.bindings(ctx, s.offloading.Namespace)
	if err != nil {
		return err
	}
	for i := range s.providers {
		p := &s.providers[i]
		if !provider.Chooses(s.offloading, p) && !p.Holds(s.offloading.Namespace) {
			continue
		}
		var live client.Object
		if binding := bindings[kubelet.BindingPrefix+p.Name]; binding != nil {
			live = binding
			delete(bindings, binding.Name)
		}
		err := r.own.ApplyTo(ctx, kubeletBinding(p, s.offloading.Namespace), live)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			continue
		}
		if err != nil {
			return err
		}
	}
	return r.unbind(ctx, bindings)
}

// bindings returns the bindings of virtual kubelets in an offloaded namespace, by name, from the cache.
func (r *reconciler) bindings(ctx context.Context, namespace string) (map[string]*rbacv1.RoleBinding, error) {
	var all rbacv1.RoleBindingList
	if err := r.client.List(ctx, &all, client.InNamespace(namespace), client.MatchingLabels{labels.AppName: kubelet.Name}); err != nil {
		return nil, fmt.Errorf("list role bindings in %s: %w", namespace, err)
	}
	found := map[string]*rbacv1.RoleBinding{}
	for i := range all.Items {
		if binding := &all.Items[i]; binding.RoleRef.Name == offloadedRole && strings.HasPrefix(binding.Name, kubelet.BindingPrefix) {
			found[binding.Name] = binding
		}
	}
	return found, nil
}

func (r *reconciler) unbind(ctx context.Context, bindings map[string]*rbacv1.RoleBinding) (err error) {
	for _, binding := range bindings {
		if binding.DeletionTimestamp != nil {
			continue
		}
		r.own.Forget(client.ObjectKeyFromObject(binding))
		failed := r.client.Delete(ctx, binding, client.Preconditions{UID: &binding.UID})
		if client.IgnoreNotFound(failed) != nil && !apierrors.IsConflict(failed) {
			err = errors.Join(err, fmt.Errorf("delete role binding %s/%s: %w", binding.Namespace, binding.Name, failed))
		}
	}
	return err
}

// ensureEnd removes the finalizer when the remote namespaces are gone, or their deadline is over.
func (r *reconciler) ensureEnd(ctx context.Context, s *offloadScope) error {
	if s.offloading.DeletionTimestamp == nil {
		return nil
	}
	// Read live: a missing entry in the cache does not prove that there is none.
	for i := range s.providers {
		p := &s.providers[i]
		live, err := providers.MapOf(ctx, r.live, p.Tenant, p.ID)
		if err != nil {
			return err
		}
		if live != nil && live.DeletionTimestamp != nil {
			live = nil // all remote namespaces there are deleted with it
		}
		p.Namespaces = live
	}
	wait, left := waitFor(s.offloading, s.providers, s.now)
	if len(left) > 0 && wait > 0 {
		s.requeueAfter = wait
		return nil
	}
	if len(left) > 0 {
		log.FromContext(ctx).Info("remote namespaces may be left, their deadline is over", "namespace", s.offloading.Namespace, "clusters", left)
		r.events.Eventf(
			s.offloading, nil, corev1.EventTypeWarning, reasons.RemoteNamespaceMayBeLeft, "Unoffload", "%s",
			printable.Note(leftoverMessage(s.offloading.Namespace, s.name, left)),
		)
	}
	bindings, err := r.bindings(ctx, s.offloading.Namespace)
	if err != nil {
		return err
	}
	if err := r.unbind(ctx, bindings); err != nil {
		return err
	}
	r.faulty.Delete(s.offloading.UID)
	r.own.Forget(client.ObjectKeyFromObject(s.offloading))
	_, err = finalizer.Patch(ctx, r.client, s.offloading, labels.FinalizerNamespaceOffloading, controllerutil.RemoveFinalizer)
	return err
}

// sweep cleans up a namespace without a NamespaceOffloading, whose finalizer was removed by hand.
func (r *reconciler) sweep(ctx context.Context, name string) error {
	namespace, err := r.namespace(ctx, name)
	if err != nil || namespace == nil {
		return err
	}
	bindings, err := r.bindings(ctx, name)
	if err != nil {
		return err
	}
	labelled := namespace.Labels[labels.SchedulingEnabled] != "" && isOurLabel(namespace) // a label of a user stays
	if !labelled && len(bindings) == 0 {
		return nil
	}
	var live offloadingv1alpha1.NamespaceOffloading
	if err := r.live.Get(ctx, offloadingRequest(name).NamespacedName, &live); !apierrors.IsNotFound(err) {
		return err // it exists, and its event follows
	}
	if err := r.unbind(ctx, bindings); err != nil || !labelled {
		return err
	}
	log.FromContext(ctx).Info("namespace is not offloaded, its label is removed", "namespace", name)
	return r.label(ctx, namespace, false)
}

// isOurLabel reports whether this controller labelled the namespace.
func isOurLabel(namespace *corev1.Namespace) bool {
	for _, entry := range namespace.ManagedFields {
		if entry.Manager == labels.OwnerOffloading && entry.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}
