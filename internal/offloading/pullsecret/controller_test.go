// SPDX-License-Identifier: Apache-2.0

package pullsecret

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/kubetest"
	kubemanager "liqo.io/liqo/internal/kube/manager"
)

const tenant, user = "liqo-tenant-milan", "controller-manager"

type env struct {
	kubetest.Env
	as *rest.Config
}

// newEnv is a cluster with the install namespace, a tenant namespace, and one that a user made to look like it.
func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	admin := kubetest.Cluster(t)
	b := &env{Env: kubetest.Env{T: t}, as: rest.CopyConfig(admin)}
	b.as.Impersonate.UserName = user
	var err error
	b.Client, err = client.New(admin, client.Options{Scheme: clientgoscheme.Scheme})
	b.Must(err)
	for name, label := range map[string]string{"liqo": "", tenant: "true", "apps": ""} {
		b.Make(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labels.TenantNamespace: label}}})
		b.Make(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: name}})
	}
	rules := b.RBACMarkers("controller.go")
	b.Bind(user, "", rules[""])
	b.Bind(user, "liqo", rules["liqo"])
	b.Bind(user, tenant, rules["liqo-tenant"])
	return b
}

// start runs the controller until stop.
func (b *env) start(secrets ...string) (stop func()) {
	b.T.Helper()
	mgr, err := kubemanager.New(b.as, kubemanager.Options{
		Scheme: clientgoscheme.Scheme, MetricsAddress: "0", HealthAddress: "0", Namespace: "liqo", SkipNameValidation: true,
	})
	b.Must(err)
	b.Must(Setup(mgr, Options{Namespace: "liqo", Secrets: secrets}))
	return kubetest.Start(b.T, "manager", mgr.Start)
}

func (b *env) deployment(namespace string) *appsv1.Deployment {
	b.T.Helper()
	selector := map[string]string{"a": "b"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kubelet, Labels: map[string]string{labels.AppPartOf: labels.PartOf}}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector}
	d.Spec.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	b.Make(d)
	return d
}

// copied waits until the Secret beside the virtual kubelet has the content.
func (b *env) copied(want string) *corev1.Secret {
	b.T.Helper()
	found := &corev1.Secret{}
	b.Until("the Secret beside the virtual kubelet has "+want, func() bool {
		err := b.Get(b.T.Context(), client.ObjectKey{Namespace: tenant, Name: Name}, found)
		return err == nil && string(found.Data[corev1.DockerConfigJsonKey]) == want
	})
	return found
}

// TestPullSecret: with the rights of its markers, the controller keeps the credentials beside each virtual kubelet, and follows changes; a Deployment of that
// name in another namespace gets none.
func TestPullSecret(t *testing.T) {
	b := newEnv(t)
	registry := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"a.example":{"auth":"MQ=="}}}`)},
	}
	b.Make(registry)
	b.deployment("apps")
	d := b.deployment(tenant)
	stop := b.start("registry", "absent")
	secret := b.copied(`{"auths":{"a.example":{"auth":"MQ=="}}}`)
	if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].UID != d.UID || secret.Type != corev1.SecretTypeDockerConfigJson {
		t.Errorf("%+v", secret)
	}
	b.Until("an event reports the Secret that does not exist", func() bool {
		var all eventsv1.EventList
		b.Must(b.List(t.Context(), &all, client.InNamespace(tenant)))
		for i := range all.Items {
			if all.Items[i].Reason == "PullSecretUnusable" && strings.Contains(all.Items[i].Note, "liqo/absent, which does not exist") {
				return true
			}
		}
		return false
	})
	b.Edit(registry, func() { registry.Data[corev1.DockerConfigJsonKey] = []byte(`{"auths":{"a.example":{"auth":"Mg=="}}}`) })
	b.copied(`{"auths":{"a.example":{"auth":"Mg=="}}}`)
	if err := b.Get(t.Context(), client.ObjectKey{Namespace: "apps", Name: Name}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace of a user got the credentials: %v", err)
	}
	stop()

	b.start() // the value is empty now
	b.Until("the Secret is deleted", func() bool {
		return apierrors.IsNotFound(b.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: Name}, &corev1.Secret{}))
	})
}
