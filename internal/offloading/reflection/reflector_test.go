// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/offloading/podplan"
)

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func service(namespace, name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: named(namespace, name), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}
}

func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: named(namespace, name), Data: map[string]string{"key": value}}
}

func slice(namespace, name, service string) *discoveryv1.EndpointSlice {
	object := &discoveryv1.EndpointSlice{
		ObjectMeta: named(namespace, name), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}, NodeName: new("worker")}},
		Ports:     []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80))}},
	}
	object.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	return object
}

func ingress(namespace, name string) *networkingv1.Ingress {
	return &networkingv1.Ingress{ObjectMeta: named(namespace, name), Spec: networkingv1.IngressSpec{
		DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
	}}
}

// TestOneWriteEach: a reflected object costs one write in the provider, none in the consumer but the event of a Service or an Ingress, and none after that.
func TestOneWriteEach(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	stop := e.run()
	e.until("the mapping exists", func() bool { mapping, _ := e.reflection.engine.Namespaces.Local(local); return mapping != nil })
	secret := &corev1.Secret{ObjectMeta: named(local, "credentials"), Data: map[string][]byte{"a": {1, 2}}}
	for _, object := range []client.Object{
		service(local, "web"), configMap(local, "settings", "1"), secret, ingress(local, "web"), slice(local, "web-x", "web"),
		configMap(local, "kube-root-ca.crt", "ca"),
	} {
		e.must(e.consumer.Create(t.Context(), object))
	}
	copies := map[string]client.Object{
		"services/web": &corev1.Service{ObjectMeta: named(remoteNS, "web")}, "configmaps/settings": &corev1.ConfigMap{ObjectMeta: named(remoteNS, "settings")},
		"secrets/credentials": &corev1.Secret{ObjectMeta: named(remoteNS, "credentials")}, "ingresses/web": &networkingv1.Ingress{ObjectMeta: named(remoteNS, "web")},
		"shadowendpointslices/web-x":        &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(remoteNS, "web-x")},
		"configmaps/kube-root-ca.crt.11111": &corev1.ConfigMap{ObjectMeta: named(remoteNS, "kube-root-ca.crt.11111")},
	}
	for path, object := range copies {
		e.until(path+" exists", func() bool { return e.exists(e.provider, object) })
		if got := object.GetLabels(); got[labels.Origin] != localID || got[labels.Destination] != remoteID {
			t.Errorf("%s: labels %v", path, got)
		}
	}
	e.waitIdle()
	for path := range copies {
		if got := e.toProvider.writesTo(path); len(got) != 1 {
			t.Errorf("%s: written %v", path, got)
		}
	}
	if got, events := e.toConsumer.writesTo(), e.toConsumer.writesTo("POST", "/events"); len(got) != 2 || len(events) != 2 {
		t.Errorf("written in the consumer: %v", got)
	}
	if len(e.toConsumer.denied.All())+len(e.toProvider.denied.All()) != 0 {
		t.Errorf("denied: %v %v", e.toConsumer.denied.All(), e.toProvider.denied.All())
	}

	t.Run("local edit", func(t *testing.T) {
		e.toProvider.reset()
		settings := configMap(local, "settings", "")
		e.edit(e.consumer, settings, func() { settings.Data = map[string]string{"other": "2"} })
		remote := configMap(remoteNS, "settings", "")
		e.until("the copy follows", func() bool {
			e.exists(e.provider, remote)
			return maps.Equal(remote.Data, map[string]string{"other": "2"})
		})
		e.waitIdle()
		if got := e.toProvider.writesTo(); len(got) != 1 {
			t.Errorf("written %v", got)
		}
	})
	t.Run("restart", func(t *testing.T) {
		stop()
		e.toConsumer.reset()
		e.toProvider.reset()
		stop = e.run()
		e.until("the ConfigMaps are cached", func() bool { return len(e.reflection.objects.Kind("ConfigMap").Remote.All(remoteNS)) >= 2 })
		e.waitIdle()
		if got := append(e.toConsumer.writesTo(), e.toProvider.writesTo()...); len(got) != 0 {
			t.Errorf("written after a restart: %v", got)
		}
	})
	t.Run("remote edit", func(t *testing.T) { remoteEdit(t, e, remoteNS) })
	t.Run("skipped", func(t *testing.T) { skipped(t, e, local, remoteNS) })
	t.Run("local deletion", func(t *testing.T) {
		e.toProvider.reset()
		e.must(e.consumer.Delete(t.Context(), secret))
		e.until("the copy is deleted", func() bool { return !e.exists(e.provider, &corev1.Secret{ObjectMeta: named(remoteNS, "credentials")}) })
		e.waitIdle()
		if got := e.toProvider.writesTo(); len(got) != 1 || strings.Contains(got[0], "without UID") {
			t.Errorf("written %v", got)
		}
	})
}

func remoteEdit(t *testing.T, e *env, remoteNS string) {
	e.toProvider.reset()
	remote := &corev1.Service{ObjectMeta: named(remoteNS, "web")}
	e.edit(e.provider, remote, func() { remote.Labels["their"] = "x" })
	e.waitIdle()
	if got := e.toProvider.writesTo(); len(got) != 0 {
		t.Errorf("written after another client added a label: %v", got)
	}
	e.edit(e.provider, remote, func() { remote.Spec.Selector["app"] = "other" })
	e.until("the selector is restored", func() bool { return e.exists(e.provider, remote) && remote.Spec.Selector["app"] == "web" })
	if remote.Labels["their"] != "x" {
		t.Error("the label of the other client is gone")
	}
	// The port is the key of its list, so after a change of it our apply is a conflict: the Service has to be created again.
	e.edit(e.provider, remote, func() { remote.Spec.Ports[0].Port = 81 })
	e.until("the port is restored", func() bool {
		return e.exists(e.provider, remote) && len(remote.Spec.Ports) == 1 && remote.Spec.Ports[0].Port == 80
	})
	e.must(e.provider.Delete(t.Context(), remote))
	e.until("the copy is created again", func() bool { return e.exists(e.provider, remote) })
}

func skipped(t *testing.T, e *env, local, remoteNS string) {
	web, remote := &corev1.Service{ObjectMeta: named(local, "web")}, &corev1.Service{ObjectMeta: named(remoteNS, "web")}
	shadow := &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(remoteNS, "web-x")}
	e.edit(e.consumer, web, func() { web.Annotations = map[string]string{labels.SkipReflection: ""} })
	e.until("the copies of the Service and of its slice are deleted", func() bool { return !e.exists(e.provider, remote) && !e.exists(e.provider, shadow) })
	e.edit(e.consumer, web, func() { web.Annotations = nil })
	e.until("the copies come back", func() bool { return e.exists(e.provider, remote) && e.exists(e.provider, shadow) })
	e.waitIdle()
}

// TestRestart: after a restart, unchanged objects cost no write.
func TestRestart(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	stop := e.run()
	const each = 30 // of three kinds
	for i := range each {
		e.must(e.consumer.Create(t.Context(), configMap(local, fmt.Sprint("c", i), "x")))
		e.must(e.consumer.Create(t.Context(), service(local, fmt.Sprint("s", i))))
		e.must(e.consumer.Create(t.Context(), slice(local, fmt.Sprint("e", i), fmt.Sprint("s", i))))
	}
	start := time.Now()
	complete := func() bool {
		return len(e.reflection.objects.Kind("ConfigMap").Remote.All(remoteNS)) == each && len(e.reflection.objects.Kind("Service").Remote.All(remoteNS)) == each &&
			len(e.reflection.objects.Kind("EndpointSlice").Remote.All(remoteNS)) == each
	}
	e.until("all are there", complete)
	t.Logf("%d objects in %v", 3*each, time.Since(start).Round(time.Millisecond))
	e.waitIdle()
	if got := e.toProvider.writesTo(); len(got) != 3*each {
		t.Errorf("%d writes", len(got))
	}
	stop()
	e.toConsumer.reset()
	e.toProvider.reset()
	e.run()
	e.until("all are cached", complete)
	e.waitIdle()
	if got := append(e.toConsumer.writesTo(), e.toProvider.writesTo()...); len(got) != 0 {
		t.Errorf("written after a restart: %v", got)
	}
	e.reflection.SetConnection(e.connection, false)
	e.reflection.SetConnection(e.connection, true)
	e.proxy.Set(kubetest.Refuse)
	e.proxy.Set(kubetest.Pass)
	e.until("all are watched again", func() bool { return e.reflection.objects.Kind("Service").Remote.Current(remoteNS) })
	e.waitIdle()
	if got := append(e.toConsumer.writesTo(), e.toProvider.writesTo()...); len(got) != 0 {
		t.Errorf("written after the connection was lost: %v", got)
	}
}

// TestUnmanaged: the engine never changes an object that another client created, and reports the conflict with an event.
func TestUnmanaged(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	unmanaged := configMap(remoteNS, "settings", "theirs")
	e.must(e.provider.Create(t.Context(), unmanaged))
	e.run()
	e.must(e.consumer.Create(t.Context(), configMap(local, "settings", "ours")))
	e.until("an event", func() bool { return e.event(local, "settings", "FailedReflection", "not managed") })
	e.waitIdle()
	e.must(e.consumer.Delete(t.Context(), configMap(local, "settings", "")))
	e.waitIdle()
	version := unmanaged.ResourceVersion
	if !e.exists(e.provider, unmanaged) || unmanaged.ResourceVersion != version {
		t.Errorf("changed: %+v", unmanaged)
	}
	if got := e.toProvider.writesTo(); len(got) != 0 {
		t.Errorf("written %v", got)
	}
	e.must(e.consumer.Create(t.Context(), configMap(local, "settings", "ours")))
	e.waitIdle()
	e.must(e.provider.Delete(t.Context(), unmanaged))
	e.until("our object takes the free name", func() bool { return e.exists(e.provider, unmanaged) && unmanaged.Data["key"] == "ours" })
}

func (e *env) event(namespace, name, reason, message string) bool {
	e.t.Helper()
	var events corev1.EventList
	e.must(e.consumer.List(e.t.Context(), &events, client.InNamespace(namespace)))
	for _, event := range events.Items {
		if event.InvolvedObject.Name == name && event.Reason == reason && strings.Contains(event.Message, message) {
			return true
		}
	}
	return false
}

// TestMappings: a mapping that stops deletes nothing, and the others go on.
func TestMappings(t *testing.T) {
	e := newEnv(t)
	one, oneRemote := e.offload()
	e.run()
	e.must(e.consumer.Create(t.Context(), configMap(one, "settings", "1")))
	e.until("the copy exists", func() bool { return e.exists(e.provider, configMap(oneRemote, "settings", "")) })
	two, twoRemote := e.offload()
	e.must(e.consumer.Create(t.Context(), configMap(two, "settings", "1")))
	e.until("the copy exists", func() bool { return e.exists(e.provider, configMap(twoRemote, "settings", "")) })
	e.waitIdle()
	e.toProvider.reset()

	e.editMap(func(m *vkv1alpha1.NamespaceMap) { delete(m.Spec.DesiredMapping, one) })
	e.until("the mapping is frozen", func() bool {
		mapping, _ := e.reflection.engine.Namespaces.Local(one)
		return mapping != nil && mapping.Terminating()
	})
	e.must(e.consumer.Delete(t.Context(), configMap(one, "settings", "")))
	e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) { delete(m.Status.CurrentMapping, one) })
	e.until("the mapping stops", func() bool { mapping, _ := e.reflection.engine.Namespaces.Local(one); return mapping == nil })
	settings := configMap(two, "settings", "")
	e.edit(e.consumer, settings, func() { settings.Data["key"] = "2" })
	e.until("the other mapping goes on", func() bool {
		remote := configMap(twoRemote, "settings", "")
		return e.exists(e.provider, remote) && remote.Data["key"] == "2"
	})
	e.waitIdle()
	if got := e.toProvider.writesTo(oneRemote); len(got) != 0 || !e.exists(e.provider, configMap(oneRemote, "settings", "")) {
		t.Errorf("written %v", got)
	}
	// The peer cannot direct us to another namespace.
	e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) {
		m.Status.CurrentMapping[two] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: oneRemote, Phase: vkv1alpha1.MappingAccepted}
	})
	e.until("nothing is reflected", func() bool { mapping, _ := e.reflection.engine.Namespaces.Local(two); return mapping == nil })
	// A deleted NamespaceMap changes nothing.
	e.must(e.consumer.Delete(t.Context(), &vkv1alpha1.NamespaceMap{ObjectMeta: named(e.tenant, mapName)}))
	e.until("the map is known to be gone", func() bool {
		_, known := e.reflection.engine.Namespaces.Local(one)
		return known == podplan.Unknown
	})
}

// TestProviderUnreachable: while the peer is unreachable the engine writes nothing. Once it is reachable again, the engine applies every change.
func TestProviderUnreachable(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.run()
	for _, name := range []string{"stays", "changes", "goes"} {
		e.must(e.consumer.Create(t.Context(), configMap(local, name, "1")))
		e.until("the copy exists", func() bool { return e.exists(e.provider, configMap(remoteNS, name, "")) })
	}
	e.waitIdle()
	e.proxy.Set(kubetest.Refuse)
	e.reflection.SetConnection(e.connection, false)
	e.toProvider.reset()
	changes := configMap(local, "changes", "")
	e.edit(e.consumer, changes, func() { changes.Data["key"] = "2" })
	e.must(e.consumer.Delete(t.Context(), configMap(local, "goes", "")))
	e.must(e.consumer.Create(t.Context(), configMap(local, "comes", "1")))
	e.must(e.provider.Delete(t.Context(), configMap(remoteNS, "stays", "")))
	e.waitIdle()
	if got := append(e.toProvider.writesTo(), e.toConsumer.writesTo()...); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
	e.proxy.Set(kubetest.Pass)
	e.reflection.SetConnection(e.connection, true)
	start := time.Now()
	e.until("all changes are applied", func() bool {
		remote := configMap(remoteNS, "changes", "")
		return e.exists(e.provider, remote) && remote.Data["key"] == "2" && e.exists(e.provider, configMap(remoteNS, "comes", "")) &&
			e.exists(e.provider, configMap(remoteNS, "stays", "")) && !e.exists(e.provider, configMap(remoteNS, "goes", ""))
	})
	t.Logf("converged after %v", time.Since(start).Round(time.Millisecond))
	for _, write := range e.toProvider.writesTo("DELETE") {
		if strings.Contains(write, "without UID") {
			t.Error(write)
		}
	}
}
