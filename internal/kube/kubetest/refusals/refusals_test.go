// SPDX-License-Identifier: Apache-2.0

package refusals_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/kube/kubetest/refusals"
)

// TestRefusals: a request without rights is a refusal until it is repeated with them; what admission refuses stays one.
func TestRefusals(t *testing.T) {
	admin := kubetest.Cluster(t)
	api, err := client.New(admin, client.Options{})
	b := kubetest.Env{Client: api, T: t}
	b.Must(err)
	var log refusals.Log
	config := rest.CopyConfig(admin)
	config.Impersonate.UserName = "user"
	config.Wrap(log.RoundTripper)
	user, err := client.New(config, client.Options{})
	b.Must(err)
	b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}}})
	b.Make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"}})
	create := func(name string, hostNetwork bool) error {
		return user.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{
			HostNetwork: hostNetwork, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}})
	}
	expect := func(what, part string) {
		t.Helper()
		all := log.All()
		one := len(all) == 1 && strings.HasPrefix(all[0], "POST /api/v1/namespaces/shop/pods: ") && strings.Contains(all[0], part)
		if part == "" && len(all) > 0 || part != "" && !one {
			t.Errorf("%s: %q", what, all)
		}
	}

	if err := create("web", false); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	expect("without rights", " cannot create resource")
	b.Bind("user", "shop", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}}})
	b.Until("the rights are observed", func() bool { return create("web", false) == nil })
	expect("with rights", "")
	if err := create("host", true); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	expect("refused by admission", "violates PodSecurity")
	b.Must(create("db", false))
	expect("another object is admitted", "violates PodSecurity")
	log.Forget()
	expect("forgotten", "")
}
