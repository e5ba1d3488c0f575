// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestAttackM1: a provider reads all Secrets that reach it. Those of Helm and of kubeadm never do, and with the reflection Referenced only those that
// something there needs.
func TestAttackM1(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { m.Spec.ReferencedOnly = []string{local} })
	secret := func(name string, kind corev1.SecretType, annotations map[string]string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: local, Name: name, Annotations: annotations}, Type: kind, Data: map[string][]byte{"password": []byte("x")},
		}
	}
	asked := map[string]string{labels.Reflect: "true"}
	for _, object := range []*corev1.Secret{
		secret("unused", "", nil), secret("used", "", nil), secret("certificate", "", nil), secret("asked-for", "", asked),
		secret("refused", "", map[string]string{labels.Reflect: "false"}),
		secret("sh.helm.release.v1.shop.v1", "helm.sh/release.v1", asked), secret("bootstrap-token-abcdef", "bootstrap.kubernetes.io/token", asked),
	} {
		e.must(e.consumer.Create(t.Context(), object))
	}
	e.must(e.consumer.Create(t.Context(), configMap(local, "unused", "1")))
	e.must(e.consumer.Create(t.Context(), configMap(local, "used", "1")))
	e.must(e.consumer.Create(t.Context(), &networkingv1.Ingress{ObjectMeta: named(local, "web"), Spec: networkingv1.IngressSpec{
		DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
		TLS:            []networkingv1.IngressTLS{{SecretName: "certificate"}},
	}}))
	pod := e.pod(local, "web")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "used"}, Key: "password"},
	}}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "used"}},
	}}}
	e.must(e.consumer.Create(t.Context(), pod))
	stop := e.run()
	there := func(kind string) (names []string) {
		for _, object := range e.reflection.objects.Kind(kind).Remote.All(remoteNS) {
			names = append(names, object.GetName())
		}
		slices.Sort(names)
		return names
	}
	expect := func(what string, secrets, configMaps []string) {
		t.Helper()
		e.until(what, func() bool {
			return slices.Equal(there("Secret"), secrets) && slices.Equal(there("ConfigMap"), configMaps)
		})
		e.waitIdle()
		if got := append(there("Secret"), there("ConfigMap")...); !slices.Equal(got, append(slices.Clone(secrets), configMaps...)) {
			t.Errorf("%s: %v", what, got)
		}
	}
	expect("what is referenced", []string{"asked-for", "certificate", "used"}, []string{"used"})
	stop()
	e.toProvider.reset()
	e.run()
	expect("the same after a restart", []string{"asked-for", "certificate", "used"}, []string{"used"})
	if got := append(e.toProvider.writesTo("/secrets"), e.toProvider.writesTo("/configmaps")...); len(got) > 0 {
		t.Errorf("written after a restart: %v", got)
	}
	e.must(e.consumer.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	e.must(e.consumer.Delete(t.Context(), &networkingv1.Ingress{ObjectMeta: named(local, "web")}))
	expect("nothing refers to the others any more", []string{"asked-for"}, nil)
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { m.Spec.ReferencedOnly = nil })
	expect("everything but what never crosses", []string{"asked-for", "certificate", "refused", "unused", "used"}, []string{"unused", "used"})
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { m.Spec.ReferencedOnly = []string{local} })
	expect("what was asked for", []string{"asked-for"}, nil)
}

// TestReferencesAfterOffloadingAgain: a namespace that is unoffloaded and offloaded again reflects only what something refers to then. Ingresses are not
// observed in between, and are reported again afterwards.
func TestReferencesAfterOffloadingAgain(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { m.Spec.ReferencedOnly = []string{local} })
	names := []string{"deleted-meanwhile", "deleted-later", "kept"}
	ingress := func(name string) *networkingv1.Ingress {
		return &networkingv1.Ingress{ObjectMeta: named(local, name), Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			TLS:            []networkingv1.IngressTLS{{SecretName: name}},
		}}
	}
	for _, name := range names {
		e.must(e.consumer.Create(t.Context(), &corev1.Secret{ObjectMeta: named(local, name), Data: map[string][]byte{"tls.key": []byte("x")}}))
		e.must(e.consumer.Create(t.Context(), ingress(name)))
	}
	there := func() (found []string) {
		for _, name := range names {
			if e.exists(e.provider, &corev1.Secret{ObjectMeta: named(remoteNS, name)}) {
				found = append(found, name)
			}
		}
		return found
	}
	phase := func(phase vkv1alpha1.MappingPhase) {
		e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) {
			m.Status.CurrentMapping[local] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: remoteNS, Phase: phase}
		})
		terminating := phase == vkv1alpha1.MappingTerminating
		e.until(string(phase), func() bool {
			mapping, _ := e.reflection.engine.Namespaces.Local(local)
			return mapping != nil && mapping.Terminating() == terminating
		})
	}
	e.run()
	e.until("all are referenced", func() bool { return slices.Equal(there(), names) })
	phase(vkv1alpha1.MappingTerminating)
	e.must(e.consumer.Delete(t.Context(), ingress(names[0])))
	phase(vkv1alpha1.MappingAccepted)
	e.until("one is not referenced any more", func() bool { return slices.Equal(there(), names[1:]) })
	e.must(e.consumer.Delete(t.Context(), ingress(names[1])))
	e.until("another one is not", func() bool { return slices.Equal(there(), names[2:]) })
	e.waitIdle()
	if got := there(); !slices.Equal(got, names[2:]) {
		t.Errorf("the provider has %v", got)
	}
}

// TestStaysHere: an event reports which Secrets and ConfigMaps that a pod refers to never leave this cluster. At the provider they do not
// exist, and its kubelet reports no more than that.
func TestStaysHere(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.run()
	skip, elsewhere := map[string]string{labels.SkipReflection: ""}, map[string]string{labels.ReflectTo: "liqo-paris"}
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: local, Name: "release"}, Type: "helm.sh/release.v1"},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: local, Name: "kept", Annotations: skip}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: local, Name: "elsewhere", Annotations: elsewhere}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: local, Name: "sent"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: local, Name: "sent"}},
	} {
		e.must(e.consumer.Create(t.Context(), object))
	}
	e.until("what is sent is there", func() bool {
		return e.exists(e.provider, &corev1.Secret{ObjectMeta: named(remoteNS, "sent")}) &&
			e.exists(e.provider, &corev1.ConfigMap{ObjectMeta: named(remoteNS, "sent")})
	})
	from := func(pod *corev1.Pod, secrets, configMaps []string) *corev1.Pod {
		for _, name := range secrets {
			pod.Spec.Containers[0].EnvFrom = append(pod.Spec.Containers[0].EnvFrom,
				corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
		}
		for _, name := range configMaps {
			pod.Spec.Containers[0].EnvFrom = append(pod.Spec.Containers[0].EnvFrom,
				corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
		}
		return pod
	}
	e.must(e.consumer.Create(t.Context(), from(e.pod(local, "fine"), []string{"sent", "none"}, []string{"sent"})))
	e.must(e.consumer.Create(t.Context(), from(e.pod(local, "stuck"), []string{"sent", "release", "kept"}, []string{"elsewhere"})))
	const want = "Secret release (of the type helm.sh/release.v1), Secret kept (annotation liqo.io/skip-reflection), ConfigMap elsewhere (annotation " +
		"liqo.io/reflect-to)"
	e.until("an event", func() bool { return e.event(local, "stuck", "ReflectionIncomplete", want) })
	if e.event(local, "fine", "ReflectionIncomplete", "") {
		t.Error("an event about a pod that lacks nothing")
	}
}
