// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/ssa"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=serviceaccounts,verbs=create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-controller-manager-tenant;liqo-auth-tenant;liqo-remote-peering-basic,verbs=bind

// ErrTerminating says that the namespace of a former tenant of the same cluster is still going away.
var ErrTerminating = errors.New("the namespace of the earlier peering with this cluster is still being deleted")

// Tenants makes tenants and takes them away.
type Tenants struct {
	cached  client.Client // namespaces, accounts and bindings of ours
	live    client.Reader
	applier *ssa.Applier
	install string
}

// New returns tenants of a cluster; cached must see namespaces, service accounts and role bindings that are
// labelled as part of this product, and install is the namespace of our own accounts.
func New(cached client.Client, live client.Reader, install string) *Tenants {
	return &Tenants{cached: cached, live: live, applier: ssa.NewApplier(cached, labels.OwnerTenant), install: install}
}

// Namespace returns the name of the peer's namespace: of the one there is, or of the one to be made.
func (t *Tenants) Namespace(ctx context.Context, peer discovery.ClusterIdentity) (string, error) {
	var list corev1.NamespaceList
	if err := t.cached.List(ctx, &list, client.MatchingLabels{labels.TenantNamespace: "true", labels.ClusterID: peer.ClusterID}); err != nil {
		return "", fmt.Errorf("look for the tenant namespace of %s: %w", peer.ClusterID, err)
	}
	if len(list.Items) > 0 {
		return list.Items[0].Name, nil
	}
	return peer.TenantNamespace(), nil
}

// Ensure makes everything that belongs to the tenant. Applied again, it sends nothing.
func (t *Tenants) Ensure(ctx context.Context, tenant Tenant) error {
	parts := Render(tenant, t.install)
	var namespace corev1.Namespace
	err := t.cached.Get(ctx, client.ObjectKey{Name: tenant.Namespace}, &namespace)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("look for namespace %s: %w", tenant.Namespace, err)
	case err == nil && namespace.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %s: %w", tenant.Namespace, ErrTerminating)
	case err == nil && namespace.Labels[labels.ClusterID] != tenant.Peer.ClusterID:
		return fmt.Errorf("namespace %s exists and is not the one of cluster %s; delete or rename it", tenant.Namespace, tenant.Peer.ClusterID)
	}
	if err := t.applier.ApplyTo(ctx, parts[0].Intent, &namespace); err != nil {
		return err
	}
	// Our own right comes next. The rest is independent of each other, and a peer waits for all of it.
	if err := t.ensurePart(ctx, tenant, parts[1]); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts[2:] {
		group.Go(func() error {
			return patiently(func() error { return t.ensurePart(ctx, tenant, part) })
		})
	}
	return group.Wait()
}

// patiently does what needs a right that was just given: the API server needs some milliseconds to hear of what it has stored.
func patiently(do func() error) error {
	return retry.OnError(wait.Backoff{Steps: 8, Duration: 5 * time.Millisecond, Factor: 2}, apierrors.IsForbidden, do)
}

func (t *Tenants) ensurePart(ctx context.Context, tenant Tenant, part Part) error {
	live := part.empty()
	if err := t.cached.Get(ctx, client.ObjectKey{Namespace: tenant.Namespace, Name: part.Name}, live); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for %s %s/%s: %w", part.Kind, tenant.Namespace, part.Name, err)
	}
	return t.applier.ApplyTo(ctx, part.Intent, live)
}

func (p Part) empty() client.Object {
	switch p.Kind {
	case "ServiceAccount":
		return &corev1.ServiceAccount{}
	case "RoleBinding":
		return &rbacv1.RoleBinding{}
	default:
		return &corev1.Namespace{}
	}
}

// Revoke takes the peer's rights away, at once: whatever it holds is worth nothing afterwards.
func (t *Tenants) Revoke(ctx context.Context, tenant Tenant) error {
	for _, part := range Revoked(tenant, t.install) {
		object := part.empty()
		object.SetNamespace(tenant.Namespace)
		object.SetName(part.Name)
		if err := t.cached.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s/%s: %w", part.Kind, tenant.Namespace, part.Name, err)
		}
	}
	return nil
}

// Delete takes a tenant away, rights first. When it returns without an error the peer can do nothing here any more, and
// the namespace is gone or going: Kubernetes itself takes five seconds and more for that, and needs nothing of ours for it.
// A namespace that is not the peer's is not touched.
func (t *Tenants) Delete(ctx context.Context, tenant Tenant) error {
	var namespace metav1.PartialObjectMetadata
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	// Asked live: a cache that has not heard of the namespace is no proof that there is none.
	if err := t.live.Get(ctx, client.ObjectKey{Name: tenant.Namespace}, &namespace); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("look for namespace %s: %w", tenant.Namespace, err)
	}
	if namespace.DeletionTimestamp != nil || namespace.Labels[labels.TenantNamespace] != "true" || namespace.Labels[labels.ClusterID] != tenant.Peer.ClusterID {
		return nil
	}
	err := t.Revoke(ctx, tenant)
	if apierrors.IsForbidden(err) {
		// What made the tenant was stopped before it had given us our own right.
		if err := t.ensurePart(ctx, tenant, Render(tenant, t.install)[1]); err != nil {
			return err
		}
		err = patiently(func() error { return t.Revoke(ctx, tenant) })
	}
	if err != nil {
		return err
	}
	uid := namespace.GetUID()
	if err := t.cached.Delete(ctx, &namespace, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete namespace %s: %w", tenant.Namespace, err)
	}
	return nil
}
