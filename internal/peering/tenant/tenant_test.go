// SPDX-License-Identifier: Apache-2.0

package tenant_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/peering/tenant"
)

var rome = discoveryv1alpha1.ClusterIdentity{ClusterID: "11111111-2222-4333-8444-555555555555", ClusterName: "rome"}

func TestRender(t *testing.T) {
	for _, c := range []struct {
		admitted, accepted bool
		want               []string
	}{
		{false, true, []string{"Namespace liqo-tenant-rome", "RoleBinding liqo-binding-liqo-controller-manager-tenant"}},
		{true, false, []string{
			"Namespace liqo-tenant-rome", "RoleBinding liqo-binding-liqo-controller-manager-tenant", "ServiceAccount liqo-peer",
			"RoleBinding liqo-binding-liqo-auth-tenant", "RoleBinding liqo-binding-liqo-remote-peering-basic",
		}},
		{true, true, []string{
			"Namespace liqo-tenant-rome", "RoleBinding liqo-binding-liqo-controller-manager-tenant", "ServiceAccount liqo-peer",
			"RoleBinding liqo-binding-liqo-auth-tenant", "RoleBinding liqo-binding-liqo-remote-peering-basic", "RoleBinding liqo-binding-liqo-remote-peering-incoming",
		}},
	} {
		var have []string
		for _, part := range tenant.Render(tenant.Tenant{Peer: rome, Namespace: "liqo-tenant-rome", Admitted: c.admitted, Accepted: c.accepted}, "liqo") {
			have = append(have, part.Kind+" "+part.Name)
			text, err := json.Marshal(part.Intent)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), rome.ClusterID) || !strings.Contains(string(text), `"`+labels.AppPartOf+`":"liqo"`) {
				t.Errorf("%s is not marked as the peer's and ours: %s", part.Name, text)
			}
		}
		if !slices.Equal(have, c.want) {
			t.Errorf("admitted %t, accepted %t: %q, want %q", c.admitted, c.accepted, have, c.want)
		}
	}
}

// TestRevokedFirst: the account, which ends all tokens, goes first, and our own right stays for the rest of the work.
func TestRevokedFirst(t *testing.T) {
	parts := tenant.Revoked(tenant.Tenant{Peer: rome, Namespace: "liqo-tenant-rome"}, "liqo")
	if len(parts) != 4 || parts[0].Kind != "ServiceAccount" {
		t.Errorf("%v", parts)
	}
	for _, part := range parts {
		if strings.Contains(part.Name, "controller-manager") || part.Kind == "Namespace" {
			t.Errorf("%s %s is taken away, too", part.Kind, part.Name)
		}
	}
}

func TestTenants(t *testing.T) {
	config := kubetest.Cluster(t)
	api, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, name := range []string{"liqo-controller-manager-tenant", "liqo-auth-tenant", "liqo-remote-peering-basic", "liqo-remote-peering-incoming"} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == "liqo-remote-peering-basic" {
			role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}
		}
		if name == "liqo-remote-peering-incoming" {
			role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}
		}
		if err := api.Create(ctx, role); err != nil {
			t.Fatal(err)
		}
	}
	tenants := tenant.New(api, api, "liqo")
	name, err := tenant.Namespace(ctx, api, rome)
	if err != nil || name != rome.TenantNamespace() {
		t.Fatalf("namespace %q, %v", name, err)
	}
	peer := tenant.Tenant{Peer: rome, Namespace: name, Admitted: true}
	for range 2 {
		if err := tenants.Ensure(ctx, peer); err != nil {
			t.Fatal(err)
		}
	}
	// The longest name of a cluster.
	long := discoveryv1alpha1.ClusterIdentity{ClusterID: "99999999-2222-4333-8444-555555555555", ClusterName: strings.Repeat("n", 63)}
	longName, err := tenant.Namespace(ctx, api, long)
	if err == nil {
		err = tenants.Ensure(ctx, tenant.Tenant{Peer: long, Namespace: longName, Admitted: true, Accepted: true})
	}
	if err != nil {
		t.Errorf("tenant of a cluster with 63 characters: %v", err)
	}
	// An attacker who may create pods there gets no node with them.
	evil := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "evil"},
		Spec:       corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := api.Create(ctx, evil, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
		t.Errorf("a pod in the network of a node: %v", err)
	}
	// The peer has the rights of the basic role, in its namespace, until it is revoked.
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	token, err := clientset.CoreV1().ServiceAccounts(name).CreateToken(ctx, tenant.PeerAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	as := rest.AnonymousClientConfig(config)
	as.BearerToken = token.Status.Token
	peerAPI, err := client.New(as, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	may := func(namespace string) error {
		return peerAPI.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(namespace))
	}
	kubetest.Eventually(t, "in its namespace", func() error { return may(name) })
	// The rights of a peer that may use this cluster come and go with the decision.
	for _, accepted := range []bool{false, true, false} {
		if peer.Accepted = accepted; tenants.Ensure(ctx, peer) != nil {
			t.Fatal(accepted)
		}
		kubetest.Eventually(t, fmt.Sprintf("accepted: %t", accepted), func() error {
			err := peerAPI.List(ctx, &corev1.PodList{}, client.InNamespace(name))
			if (err == nil) != accepted {
				return fmt.Errorf("accepted %t, and the answer is %v", accepted, err)
			}
			return nil
		})
	}
	if err := may("default"); !apierrors.IsForbidden(err) {
		t.Errorf("in another namespace: %v", err)
	}
	if !tenants.Remembers(name) {
		t.Fatal("a tenant leaves nothing in memory, so that this test can fail for no leak")
	}
	if err := tenants.Delete(ctx, peer); err != nil {
		t.Fatal(err)
	}
	if tenants.Remembers(name) {
		t.Error("a tenant that was deleted is still in memory")
	}
	kubetest.Eventually(t, "it is revoked", func() error {
		if err := may(name); !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("after it was revoked: %v", err)
		}
		return nil
	})
	// No namespace controller runs here, so the namespace stays in this state.
	if err := tenants.Ensure(ctx, peer); !errors.Is(err, tenant.ErrTerminating) {
		t.Errorf("a tenant that is being deleted: %v", err)
	}
	if err := tenants.Delete(ctx, peer); err != nil {
		t.Errorf("deleted twice: %v", err)
	}
	// An unmanaged namespace is neither adopted nor deleted.
	unmanaged := tenant.Tenant{Peer: rome, Namespace: "default"}
	if err := tenants.Ensure(ctx, unmanaged); err == nil {
		t.Error("adopted namespace default")
	}
	if err := tenants.Delete(ctx, unmanaged); err != nil {
		t.Error(err)
	}
	var kept corev1.Namespace
	if err := api.Get(ctx, client.ObjectKey{Name: "default"}, &kept); err != nil || kept.DeletionTimestamp != nil {
		t.Errorf("namespace default: %v, deleted %v", err, kept.DeletionTimestamp)
	}
	unfinished(t, config, api)
}

// unfinished: a tenant can be deleted if its creation stopped after the namespace, when we have no right in it yet.
func unfinished(t *testing.T, config *rest.Config, api client.Client) {
	ctx := t.Context()
	manager := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "liqo-controller-manager"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "delete"}},
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"rolebindings"}, Verbs: []string{"get", "create", "patch"}},
		{
			APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles"}, Verbs: []string{"bind"},
			ResourceNames: []string{"liqo-controller-manager-tenant"},
		},
	}}
	inside := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "liqo-controller-manager-tenant"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"delete"}},
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"rolebindings"}, Verbs: []string{"delete"}},
	}}
	half := tenant.Tenant{Peer: discoveryv1alpha1.ClusterIdentity{ClusterID: "half-id", ClusterName: "half"}, Namespace: "liqo-tenant-half"}
	for _, object := range []client.Object{
		manager, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "liqo-controller-manager"},
			RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "liqo-controller-manager"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "liqo", Name: tenant.ManagerAccount}},
		},
		&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: half.Namespace, Labels: map[string]string{labels.TenantNamespace: "true", labels.ClusterID: "half-id"}},
		},
	} {
		if err := api.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Update(ctx, inside); err != nil {
		t.Fatal(err)
	}
	as := rest.CopyConfig(config)
	as.Impersonate.UserName = "system:serviceaccount:liqo:" + tenant.ManagerAccount
	ours, err := client.New(as, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tenants := tenant.New(ours, ours, "liqo")
	for deadline := time.Now().Add(10 * time.Second); ; { // the API server observes the rights above a moment later
		if err = tenants.Delete(ctx, half); err == nil || time.Now().After(deadline) {
			break
		}
	}
	var namespace corev1.Namespace
	if err != nil || api.Get(ctx, client.ObjectKey{Name: half.Namespace}, &namespace) != nil || namespace.DeletionTimestamp == nil {
		t.Errorf("%v; the namespace is deleted: %v", err, namespace.DeletionTimestamp)
	}
}
