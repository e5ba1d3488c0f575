// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	networkingapply "k8s.io/client-go/applyconfigurations/networking/v1"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// boundsName is the name of the ResourceQuota, the LimitRange and the NetworkPolicy in each remote namespace.
const boundsName = "liqo-peer"

// Bounds limit what a consumer may have in each of its remote namespaces. They exist before its rights there.
type Bounds struct {
	// Quota is the most of what a ResourceQuota counts; empty for no ResourceQuota. It must count only resources of Kubernetes itself: of custom
	// resources that are new in a cluster, a ResourceQuota refuses all objects for up to five minutes.
	Quota corev1.ResourceList
	// ContainerLimits are the limits of containers that set none, by a LimitRange; empty for no LimitRange.
	ContainerLimits corev1.ResourceList
}

// bound is one object that limits a remote namespace; without an intent, there is to be none.
type bound struct {
	object client.Object
	intent runtime.ApplyConfiguration
}

// objects returns the bounds of one remote namespace. The pods of the peer may reach what policy admits; nil for no NetworkPolicy.
func (b Bounds) objects(namespace, consumer string, policy *networkingapply.NetworkPolicySpecApplyConfiguration) []bound {
	common := map[string]string{labels.AppPartOf: labels.PartOf, labels.ClusterID: consumer}
	quota, limits, isolated := bound{object: &corev1.ResourceQuota{}}, bound{object: &corev1.LimitRange{}}, bound{object: &networkingv1.NetworkPolicy{}}
	if policy != nil {
		isolated.intent = networkingapply.NetworkPolicy(boundsName, namespace).WithLabels(common).WithSpec(policy)
	}
	if len(b.Quota) > 0 {
		quota.intent = coreapply.ResourceQuota(boundsName, namespace).WithLabels(common).WithSpec(coreapply.ResourceQuotaSpec().WithHard(b.Quota))
	}
	if len(b.ContainerLimits) > 0 {
		// Otherwise a limit would become the request, and count against the grant.
		nothing := corev1.ResourceList{}
		for name := range b.ContainerLimits {
			nothing[name] = resource.MustParse("0")
		}
		limits.intent = coreapply.LimitRange(boundsName, namespace).WithLabels(common).WithSpec(coreapply.LimitRangeSpec().
			WithLimits(coreapply.LimitRangeItem().WithType(corev1.LimitTypeContainer).WithDefault(b.ContainerLimits).WithDefaultRequest(nothing)))
	}
	return []bound{isolated, quota, limits}
}

// boundsChanged passes what another client does to the bounds. The status of a ResourceQuota changes with each object that it counts.
var boundsChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(change event.UpdateEvent) bool {
		switch before := change.ObjectOld.(type) {
		case *corev1.ResourceQuota:
			after, ok := change.ObjectNew.(*corev1.ResourceQuota)
			return ok && !equality.Semantic.DeepEqual(before.Spec, after.Spec)
		case *corev1.LimitRange:
			after, ok := change.ObjectNew.(*corev1.LimitRange)
			return ok && !equality.Semantic.DeepEqual(before.Spec, after.Spec)
		case *networkingv1.NetworkPolicy:
			after, ok := change.ObjectNew.(*networkingv1.NetworkPolicy)
			return ok && !equality.Semantic.DeepEqual(before.Spec, after.Spec)
		}
		return false
	},
}

// bind grants rights in a remote namespace: first to ourselves, because the consumer writes ShadowPods as soon as it may. The consumer gets its
// rights last, when what bounds them exists.
func (r *reconciler) bind(ctx context.Context, p mapOwner, t *remoteNamespace) error {
	for _, step := range []struct {
		binding string // its name
		do      func() error
	}{
		{managerAccount, func() error {
			return r.bindOne(ctx, p, t.remote, binding{managerAccount, managerRole, managerAccount, p.install})
		}},
		{"", func() error { return r.limit(ctx, p, t.remote) }},
		{p.tenant, func() error { return r.bindOne(ctx, p, t.remote, binding{p.tenant, remoteRole, peerAccount, p.tenant}) }},
	} {
		err := step.do()
		switch {
		case err == nil:
			continue
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			t.answer.Phase = vkv1alpha1.MappingTerminating
			return nil
		case step.binding != "" && apierrors.IsInvalid(err): // another role is bound under this name, and a role reference cannot be changed
			t.answer.Phase = vkv1alpha1.MappingCreationLoopBackOff
			t.answer.Message = fmt.Sprintf("role binding %s in namespace %s of the provider is not ours; ask for its removal there", step.binding, t.remote)
		case t.before != vkv1alpha1.MappingAccepted: // without rights, the namespace is unusable
			t.answer.Phase = vkv1alpha1.MappingCreationLoopBackOff
			t.answer.Message = "the provider could not grant rights in namespace " + t.remote + " and retries; see the logs of its Deployment liqo-controller-manager"
		}
		return err
	}
	return nil
}

// limit applies the bounds of a remote namespace. The rights to do so may be new, and the authorizer observes them some milliseconds later.
func (r *reconciler) limit(ctx context.Context, p mapOwner, namespace string) error {
	for _, object := range r.options.Bounds.objects(namespace, p.consumer, p.isolation) {
		soon := wait.Backoff{Steps: 8, Duration: 5 * time.Millisecond, Factor: 2}
		err := retry.OnError(soon, func(err error) bool {
			return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
		}, func() error { return r.limitOne(ctx, namespace, object) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciler) limitOne(ctx context.Context, namespace string, limit bound) error {
	live := limit.object.DeepCopyObject().(client.Object)
	switch err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: boundsName}, live); {
	case apierrors.IsNotFound(err) && limit.intent == nil:
		return nil
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return fmt.Errorf("look for the bounds of namespace %s: %w", namespace, err)
	case limit.intent == nil:
		if err := r.client.Delete(ctx, live); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %T %s/%s: %w", live, namespace, boundsName, err)
		}
		return nil
	}
	return r.own.ApplyTo(ctx, limit.intent, live)
}

// binding gives a role to a service account.
type binding struct{ name, role, account, namespace string }

func (r *reconciler) bindOne(ctx context.Context, p mapOwner, remote string, b binding) error {
	intent := rbacapply.RoleBinding(b.name, remote).
		WithLabels(map[string]string{labels.AppPartOf: labels.PartOf, labels.ClusterID: p.consumer}).
		WithRoleRef(rbacapply.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(b.role)).
		WithSubjects(rbacapply.Subject().WithKind("ServiceAccount").WithName(b.account).WithNamespace(b.namespace))
	key := client.ObjectKey{Namespace: remote, Name: b.name}
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
