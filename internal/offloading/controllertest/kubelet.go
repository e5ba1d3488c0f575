// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"bytes"
	"io"
	"os"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"liqo.io/liqo/internal/kube/kubetest"
)

// VirtualKubelet creates the service account of a virtual kubelet in a tenant namespace, its rights as the chart and the controller of virtual nodes define
// them, and a token. It returns the configuration of its clients.
func VirtualKubelet(b *kubetest.Env, admin *rest.Config, tenant string) *rest.Config {
	b.T.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "virtual-kubelet"}}
	b.Make(account)
	text, err := os.ReadFile("../../../deployments/liqo/files/rbac-virtual-kubelet.yaml")
	b.Must(err)
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: tenant, Name: account.Name}}
	for {
		var role rbacv1.ClusterRole
		err := documents.Decode(&role)
		if err == io.EOF {
			break
		}
		b.Must(err)
		if role.Name == "" {
			continue
		}
		b.Make(&role)
		name := metav1.ObjectMeta{Name: role.Name}
		reference := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
		switch {
		case strings.HasSuffix(role.Name, "-tenant"):
			name.Namespace = tenant
		case strings.HasSuffix(role.Name, "-lease"):
			name.Namespace = "kube-node-lease"
		default:
			b.Make(&rbacv1.ClusterRoleBinding{ObjectMeta: name, Subjects: subjects, RoleRef: reference})
			continue
		}
		b.Make(&rbacv1.RoleBinding{ObjectMeta: name, Subjects: subjects, RoleRef: reference})
	}
	b.Must(b.Create(b.T.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "liqo-virtual-kubelet"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
	}))
	token := &authenticationv1.TokenRequest{}
	b.Must(b.SubResource("token").Create(b.T.Context(), account, token))
	cfg := rest.AnonymousClientConfig(admin)
	cfg.QPS, cfg.BearerToken = -1, token.Status.Token
	return cfg
}
