// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/kube/ssa"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=serviceaccounts,verbs=create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-controller-manager-tenant;liqo-auth-tenant;liqo-remote-peering-basic;liqo-remote-peering-incoming,verbs=bind

// ErrTerminating: the namespace of an earlier tenant of the same cluster is still being deleted.
var ErrTerminating = errors.New("the namespace of the earlier peering with this cluster is still being deleted")

// ErrTaken: the namespace that a cluster would have is that of another cluster. Its name consists of the name that a cluster gives itself and six digits of a
// hash of its ID, so a cluster can choose both to get the namespace of another one.
var ErrTaken = errors.New("it belongs to another cluster, with the same name and the same first digits of the hash of its ID")

// Tenants creates and deletes tenants.
type Tenants struct {
	cached  client.Client // namespaces, accounts and bindings of ours
	live    client.Reader
	applier *ssa.Applier
	install string
}

// New returns the tenants of a cluster. cached must see the namespaces, service accounts and role bindings that have our
// part-of label. install is the namespace of our own accounts.
func New(cached client.Client, live client.Reader, install string) *Tenants {
	return &Tenants{cached: cached, live: live, applier: ssa.NewApplier(cached, labels.OwnerTenant), install: install}
}

// Namespace returns the name of the peer's namespace: that of the existing one, else of the one to create. It returns ErrTaken if that one is another
// cluster's.
func Namespace(ctx context.Context, from client.Reader, peer discovery.ClusterIdentity) (string, error) {
	var list corev1.NamespaceList
	if err := from.List(ctx, &list, client.MatchingLabels{labels.TenantNamespace: "true", labels.ClusterID: peer.ClusterID}); err != nil {
		return "", fmt.Errorf("find the tenant namespace of %s: %w", peer.ClusterID, err)
	}
	if len(list.Items) > 0 {
		return list.Items[0].Name, nil
	}
	name := peer.TenantNamespace()
	var namespace corev1.Namespace
	if err := from.Get(ctx, client.ObjectKey{Name: name}, &namespace); err != nil {
		if apierrors.IsNotFound(err) {
			return name, nil
		}
		return "", fmt.Errorf("read namespace %s: %w", name, err)
	}
	if err := checkOwner(&namespace, peer); errors.Is(err, ErrTaken) {
		return "", err
	}
	return name, nil
}

// checkOwner returns why an existing namespace cannot be the peer's.
func checkOwner(namespace *corev1.Namespace, peer discovery.ClusterIdentity) error {
	switch namespace.Labels[labels.ClusterID] {
	case peer.ClusterID:
		return nil
	case "":
		return fmt.Errorf(
			"namespace %s exists and does not belong to cluster %s; move its contents to another namespace and delete it", namespace.Name,
			peer.ClusterID,
		)
	default:
		return fmt.Errorf("namespace %s cannot be that of cluster %s: %w", namespace.Name, peer.ClusterID, ErrTaken)
	}
}

// HasAccount reports whether a tenant namespace has the account of its peer: then this cluster has admitted the peer.
func HasAccount(ctx context.Context, from client.Reader, namespace, clusterID string) (bool, error) {
	var accounts corev1.ServiceAccountList // a live read of one account would need another right
	if err := from.List(ctx, &accounts, client.InNamespace(namespace), client.MatchingLabels{labels.ClusterID: clusterID}); err != nil {
		return false, fmt.Errorf("list the accounts in namespace %s: %w", namespace, err)
	}
	return slices.ContainsFunc(accounts.Items, func(account corev1.ServiceAccount) bool { return account.Name == PeerAccount }), nil
}

// Ensure applies all objects of the tenant. Called again, it sends nothing.
func (t *Tenants) Ensure(ctx context.Context, tenant Tenant) error {
	parts := Render(tenant, t.install)
	var namespace corev1.Namespace
	err := t.cached.Get(ctx, client.ObjectKey{Name: tenant.Namespace}, &namespace)
	if apierrors.IsNotFound(err) { // perhaps in the cache only: what is applied would take the namespace away from its owner
		err = t.live.Get(ctx, client.ObjectKey{Name: tenant.Namespace}, &namespace)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read namespace %s: %w", tenant.Namespace, err)
	}
	if err == nil {
		if err := checkOwner(&namespace, tenant.Peer); err != nil {
			return err
		}
		if namespace.DeletionTimestamp != nil {
			return fmt.Errorf("namespace %s: %w", tenant.Namespace, ErrTerminating)
		}
	}
	if err := t.applier.ApplyTo(ctx, parts[0].Intent, &namespace); err != nil {
		return err
	}
	// Our own rights come next. The other parts do not depend on each other, and a peer waits for all of them.
	if err := t.ensurePart(ctx, tenant, parts[1]); err != nil {
		return err
	}
	group, each := errgroup.WithContext(ctx)
	for _, part := range parts[2:] {
		group.Go(func() error {
			return retryForbidden(func() error { return t.ensurePart(each, tenant, part) })
		})
	}
	if err := group.Wait(); err != nil || tenant.Accepted {
		return err
	}
	return t.deletePart(ctx, tenant, Part{Kind: "RoleBinding", Name: "liqo-binding-" + incomingRole})
}

// deletePart deletes a part that the cache has.
func (t *Tenants) deletePart(ctx context.Context, tenant Tenant, part Part) error {
	object := part.empty()
	if err := t.cached.Get(ctx, client.ObjectKey{Namespace: tenant.Namespace, Name: part.Name}, object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := t.cached.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s %s/%s: %w", part.Kind, tenant.Namespace, part.Name, err)
	}
	return nil
}

// retryForbidden retries a call that needs a new role binding: the authorizer observes it some milliseconds later.
func retryForbidden(do func() error) error {
	return retry.OnError(wait.Backoff{Steps: 8, Duration: 5 * time.Millisecond, Factor: 2}, apierrors.IsForbidden, do)
}

func (t *Tenants) ensurePart(ctx context.Context, tenant Tenant, part Part) error {
	live := part.empty()
	if err := t.cached.Get(ctx, client.ObjectKey{Namespace: tenant.Namespace, Name: part.Name}, live); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read %s %s/%s: %w", part.Kind, tenant.Namespace, part.Name, err)
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

// Revoke deletes the peer's rights. Its tokens are invalid afterwards.
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

// Delete deletes a tenant, rights first. When it returns nil, the peer has no rights here and the namespace is gone or
// being deleted: Kubernetes takes five seconds or more for that, without us. Delete ignores a namespace of another owner.
func (t *Tenants) Delete(ctx context.Context, tenant Tenant) error {
	defer t.applier.ForgetNamespace(tenant.Namespace) // peers may come under ever new names
	var namespace metav1.PartialObjectMetadata
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	// Live, because its absence from the cache is no proof.
	if err := t.live.Get(ctx, client.ObjectKey{Name: tenant.Namespace}, &namespace); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read namespace %s: %w", tenant.Namespace, err)
	}
	if namespace.DeletionTimestamp != nil || namespace.Labels[labels.TenantNamespace] != "true" || namespace.Labels[labels.ClusterID] != tenant.Peer.ClusterID {
		return nil
	}
	err := t.Revoke(ctx, tenant)
	if apierrors.IsForbidden(err) {
		// The controller stopped during the creation, before it had bound our own rights.
		if err := t.ensurePart(ctx, tenant, Render(tenant, t.install)[1]); err != nil {
			return err
		}
		err = retryForbidden(func() error { return t.Revoke(ctx, tenant) })
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

// RunsPods reports whether a peer has pods here that have not ended.
func RunsPods(ctx context.Context, reader client.Reader, clusterID string) (bool, error) {
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.MatchingLabels{labels.Origin: clusterID}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list pods of cluster %s: %w", clusterID, err)
	}
	for i := range pods.Items {
		if !podphase.Final(pods.Items[i].Status.Phase) {
			return true, nil
		}
	}
	return false, nil
}
