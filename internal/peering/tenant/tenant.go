// SPDX-License-Identifier: Apache-2.0

// Package tenant creates and deletes the tenant of a peer: a namespace and the rights in it. tenant.go defines the
// objects of a tenant as values. tenants.go applies them, and deletes them, rights first.
//
// It must not know why a peer is a tenant, nor what is exchanged in the namespace. The proof is tenant_test.go, against a
// real API server, and its table of what Render returns.
package tenant

import (
	"k8s.io/apimachinery/pkg/runtime"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
)

// Names that the chart and this package agree on.
const (
	// PeerAccount is the ServiceAccount of a consumer, in its tenant namespace.
	PeerAccount = "liqo-peer"
	// ManagerAccount and AuthAccount are our own ServiceAccounts, in the install namespace.
	ManagerAccount = "liqo-controller-manager"
	AuthAccount    = "liqo-auth"

	// Cluster roles of the chart, bound in tenant namespaces only.
	managerRole = "liqo-controller-manager-tenant"
	authRole    = "liqo-auth-tenant"
	basicRole   = "liqo-remote-peering-basic"
	// incomingRole has the rights of a peer that may use this cluster.
	incomingRole = "liqo-remote-peering-incoming"
)

// Tenant identifies a tenant.
type Tenant struct {
	// Peer is the other cluster.
	Peer discovery.ClusterIdentity
	// Namespace is its namespace in this cluster.
	Namespace string
	// Admitted: the peer has registered a key and may act here. Other peers only lend us resources.
	Admitted bool
	// Accepted: the peer may use this cluster.
	Accepted bool
}

// Part is one object of a tenant. The first part is the namespace, which the others need.
type Part struct {
	Kind, Name string
	Intent     runtime.ApplyConfiguration
}

// Render returns all parts of a tenant. install is the namespace of our own accounts.
func Render(t Tenant, install string) []Part {
	common := map[string]string{labels.AppPartOf: labels.PartOf, labels.ClusterID: t.Peer.ClusterID}
	parts := []Part{{"Namespace", t.Namespace, corev1.Namespace(t.Namespace).WithLabels(common).
		// Only the virtual kubelet runs here.
		WithLabels(map[string]string{labels.TenantNamespace: "true", "pod-security.kubernetes.io/enforce": "restricted"})}}
	bind := func(role, account, namespace string) {
		name := "liqo-binding-" + role
		parts = append(parts, Part{"RoleBinding", name, rbacv1.RoleBinding(name, t.Namespace).WithLabels(common).
			WithRoleRef(rbacv1.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("ClusterRole").WithName(role)).
			WithSubjects(rbacv1.Subject().WithKind("ServiceAccount").WithName(account).WithNamespace(namespace))})
	}
	bind(managerRole, ManagerAccount, install)
	if t.Admitted {
		// No pod may run with this account's token.
		parts = append(parts, Part{"ServiceAccount", PeerAccount, corev1.ServiceAccount(PeerAccount, t.Namespace).
			WithLabels(common).WithAutomountServiceAccountToken(false)})
		bind(authRole, AuthAccount, install)
		bind(basicRole, PeerAccount, t.Namespace)
		if t.Accepted {
			bind(incomingRole, PeerAccount, t.Namespace)
		}
	}
	return parts
}

// Revoked returns the parts that give a peer its rights, in the order in which they are deleted.
func Revoked(t Tenant, install string) []Part {
	t.Admitted, t.Accepted = true, true
	var parts []Part
	for _, part := range Render(t, install) {
		if part.Kind == "ServiceAccount" {
			parts = append([]Part{part}, parts...) // its deletion invalidates all its tokens
		} else if part.Kind == "RoleBinding" && part.Name != "liqo-binding-"+managerRole {
			parts = append(parts, part)
		}
	}
	return parts
}
