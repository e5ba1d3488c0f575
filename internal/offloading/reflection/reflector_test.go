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

// TestOneWriteEach: what crosses costs one write there, none here, and nothing after that.
func TestOneWriteEach(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	stop := b.run()
	b.until("the pair is there", func() bool { pair, _ := b.engine.pairs.local(local); return pair != nil })
	secret := &corev1.Secret{ObjectMeta: named(local, "credentials"), Data: map[string][]byte{"a": {1, 2}}}
	for _, object := range []client.Object{service(local, "web"), configMap(local, "settings", "1"), secret, ingress(local, "web"), slice(local, "web-x", "web"), configMap(local, "kube-root-ca.crt", "ca")} {
		b.must(b.home.Create(t.Context(), object))
	}
	copies := map[string]client.Object{
		"services/web": &corev1.Service{ObjectMeta: named(twin, "web")}, "configmaps/settings": &corev1.ConfigMap{ObjectMeta: named(twin, "settings")},
		"secrets/credentials": &corev1.Secret{ObjectMeta: named(twin, "credentials")}, "ingresses/web": &networkingv1.Ingress{ObjectMeta: named(twin, "web")},
		"shadowendpointslices/web-x":        &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(twin, "web-x")},
		"configmaps/kube-root-ca.crt.11111": &corev1.ConfigMap{ObjectMeta: named(twin, "kube-root-ca.crt.11111")},
	}
	for path, object := range copies {
		b.until(path+" is there", func() bool { return b.exists(b.away, object) })
		if got := object.GetLabels(); got[labels.Origin] != localID || got[labels.Destination] != remoteID {
			t.Errorf("%s: labels %v", path, got)
		}
	}
	b.quiet()
	for path := range copies {
		if got := b.there.taken(path); len(got) != 1 {
			t.Errorf("%s: written %v", path, got)
		}
	}
	if got := b.here.taken(); len(got) != 0 {
		t.Errorf("written here: %v", got)
	}
	if len(b.here.denied)+len(b.there.denied) != 0 {
		t.Errorf("denied: %v %v", b.here.denied, b.there.denied)
	}

	t.Run("local edit", func(t *testing.T) {
		b.there.reset()
		settings := configMap(local, "settings", "")
		b.edit(b.home, settings, func() { settings.Data = map[string]string{"other": "2"} })
		remote := configMap(twin, "settings", "")
		b.until("the copy follows", func() bool {
			b.exists(b.away, remote)
			return maps.Equal(remote.Data, map[string]string{"other": "2"})
		})
		b.quiet()
		if got := b.there.taken(); len(got) != 1 {
			t.Errorf("written %v", got)
		}
	})
	t.Run("restart", func(t *testing.T) {
		stop()
		b.here.reset()
		b.there.reset()
		stop = b.run()
		b.until("all is known", func() bool { return len(b.engine.reflector("ConfigMap").remote.All(twin)) >= 2 })
		b.quiet()
		if got := append(b.here.taken(), b.there.taken()...); len(got) != 0 {
			t.Errorf("written after a restart: %v", got)
		}
	})
	t.Run("remote edit", func(t *testing.T) { remoteEdit(t, b, twin) })
	t.Run("skipped", func(t *testing.T) { skipped(t, b, local, twin) })
	t.Run("local deletion", func(t *testing.T) {
		b.there.reset()
		b.must(b.home.Delete(t.Context(), secret))
		b.until("the copy goes", func() bool { return !b.exists(b.away, &corev1.Secret{ObjectMeta: named(twin, "credentials")}) })
		b.quiet()
		if got := b.there.taken(); len(got) != 1 || strings.Contains(got[0], "without UID") {
			t.Errorf("written %v", got)
		}
	})
}

func remoteEdit(t *testing.T, b *bed, twin string) {
	b.there.reset()
	remote := &corev1.Service{ObjectMeta: named(twin, "web")}
	b.edit(b.away, remote, func() { remote.Labels["their"] = "x" })
	b.quiet()
	if got := b.there.taken(); len(got) != 0 {
		t.Errorf("somebody added what is not ours: written %v", got)
	}
	b.edit(b.away, remote, func() { remote.Spec.Selector["app"] = "other" })
	b.until("it is as it was", func() bool { return b.exists(b.away, remote) && remote.Spec.Selector["app"] == "web" })
	if remote.Labels["their"] != "x" {
		t.Error("what somebody else added is gone")
	}
	// A port is the key of its list: who changes it leaves what cannot be applied to.
	b.edit(b.away, remote, func() { remote.Spec.Ports[0].Port = 81 })
	b.until("its port is as it was", func() bool {
		return b.exists(b.away, remote) && len(remote.Spec.Ports) == 1 && remote.Spec.Ports[0].Port == 80
	})
	b.must(b.away.Delete(t.Context(), remote))
	b.until("it is made again", func() bool { return b.exists(b.away, remote) })
}

func skipped(t *testing.T, b *bed, local, twin string) {
	web, remote := &corev1.Service{ObjectMeta: named(local, "web")}, &corev1.Service{ObjectMeta: named(twin, "web")}
	shadow := &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(twin, "web-x")}
	b.edit(b.home, web, func() { web.Annotations = map[string]string{labels.SkipReflection: ""} })
	b.until("the copies go, that of its slice too", func() bool { return !b.exists(b.away, remote) && !b.exists(b.away, shadow) })
	b.edit(b.home, web, func() { web.Annotations = nil })
	b.until("the copies come back", func() bool { return b.exists(b.away, remote) && b.exists(b.away, shadow) })
	b.quiet()
}

// TestRestart: 300 objects that have not changed cost no write.
func TestRestart(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	stop := b.run()
	for i := range 100 {
		b.must(b.home.Create(t.Context(), configMap(local, fmt.Sprint("c", i), "x")))
		b.must(b.home.Create(t.Context(), service(local, fmt.Sprint("s", i))))
		b.must(b.home.Create(t.Context(), slice(local, fmt.Sprint("e", i), fmt.Sprint("s", i))))
	}
	begin := time.Now()
	complete := func() bool {
		return len(b.engine.reflector("ConfigMap").remote.All(twin)) == 100 && len(b.engine.reflector("Service").remote.All(twin)) == 100 &&
			len(b.engine.reflector("EndpointSlice").remote.All(twin)) == 100
	}
	b.until("all are there", complete)
	t.Logf("300 objects in %v", time.Since(begin).Round(time.Millisecond))
	b.quiet()
	if got := b.there.taken(); len(got) != 300 {
		t.Errorf("%d writes", len(got))
	}
	stop()
	b.here.reset()
	b.there.reset()
	b.run()
	b.until("all are known", complete)
	b.quiet()
	if got := append(b.here.taken(), b.there.taken()...); len(got) != 0 {
		t.Errorf("written after a restart: %v", got)
	}
	b.engine.SetConnection(b.connection, false)
	b.engine.SetConnection(b.connection, true)
	b.wire.Set(kubetest.Refuse)
	b.wire.Set(kubetest.Pass)
	b.until("all are watched again", func() bool { return b.engine.reflector("Service").remote.Current(twin) })
	b.quiet()
	if got := append(b.here.taken(), b.there.taken()...); len(got) != 0 {
		t.Errorf("written after the connection was lost: %v", got)
	}
}

// TestStrangers: what somebody else made is never touched, and the user is told.
func TestStrangers(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	stranger := configMap(twin, "settings", "theirs")
	b.must(b.away.Create(t.Context(), stranger))
	b.run()
	b.must(b.home.Create(t.Context(), configMap(local, "settings", "ours")))
	b.until("an event", func() bool { return b.event(local, "settings", "FailedReflection", "not managed") })
	b.quiet()
	b.must(b.home.Delete(t.Context(), configMap(local, "settings", "")))
	b.quiet()
	version := stranger.ResourceVersion
	if !b.exists(b.away, stranger) || stranger.ResourceVersion != version {
		t.Errorf("touched: %+v", stranger)
	}
	if got := b.there.taken(); len(got) != 0 {
		t.Errorf("written %v", got)
	}
	b.must(b.home.Create(t.Context(), configMap(local, "settings", "ours")))
	b.quiet()
	b.must(b.away.Delete(t.Context(), stranger))
	b.until("the name is free", func() bool { return b.exists(b.away, stranger) && stranger.Data["key"] == "ours" })
}

func (b *bed) event(namespace, name, reason, message string) bool {
	b.t.Helper()
	var events corev1.EventList
	b.must(b.home.List(b.t.Context(), &events, client.InNamespace(namespace)))
	for _, event := range events.Items {
		if event.InvolvedObject.Name == name && event.Reason == reason && strings.Contains(event.Message, message) {
			return true
		}
	}
	return false
}

// TestPairs: a pair that stops deletes nothing, and another one goes on.
func TestPairs(t *testing.T) {
	b := newBed(t)
	one, oneTwin := b.offload()
	b.run()
	b.must(b.home.Create(t.Context(), configMap(one, "settings", "1")))
	b.until("there", func() bool { return b.exists(b.away, configMap(oneTwin, "settings", "")) })
	two, twoTwin := b.offload()
	b.must(b.home.Create(t.Context(), configMap(two, "settings", "1")))
	b.until("there", func() bool { return b.exists(b.away, configMap(twoTwin, "settings", "")) })
	b.quiet()
	b.there.reset()

	b.mapped(func(m *vkv1alpha1.NamespaceMap) { delete(m.Spec.DesiredMapping, one) })
	b.until("the pair fades", func() bool { pair, _ := b.engine.pairs.local(one); return pair != nil && pair.leaving.Load() })
	b.must(b.home.Delete(t.Context(), configMap(one, "settings", "")))
	b.current(func(m *vkv1alpha1.NamespaceMap) { delete(m.Status.CurrentMapping, one) })
	b.until("the pair ends", func() bool { pair, _ := b.engine.pairs.local(one); return pair == nil })
	settings := configMap(two, "settings", "")
	b.edit(b.home, settings, func() { settings.Data["key"] = "2" })
	b.until("the other pair goes on", func() bool {
		remote := configMap(twoTwin, "settings", "")
		return b.exists(b.away, remote) && remote.Data["key"] == "2"
	})
	b.quiet()
	if got := b.there.taken(oneTwin); len(got) != 0 || !b.exists(b.away, configMap(oneTwin, "settings", "")) {
		t.Errorf("written %v", got)
	}
	// The peer cannot lead us elsewhere.
	b.current(func(m *vkv1alpha1.NamespaceMap) {
		m.Status.CurrentMapping[two] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: oneTwin, Phase: vkv1alpha1.MappingAccepted}
	})
	b.until("nothing is reflected", func() bool { pair, _ := b.engine.pairs.local(two); return pair == nil })
	// A map that is gone says nothing.
	b.must(b.home.Delete(t.Context(), &vkv1alpha1.NamespaceMap{ObjectMeta: named(b.tenant, mapName)}))
	b.quiet()
	if _, known := b.engine.pairs.local(one); known != unknown {
		t.Errorf("known: %v", known)
	}
}

// TestProviderDead: while nobody answers nothing is deleted, and when the peer is back all is as it should be.
func TestProviderDead(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.run()
	for _, name := range []string{"stays", "changes", "goes"} {
		b.must(b.home.Create(t.Context(), configMap(local, name, "1")))
		b.until("there", func() bool { return b.exists(b.away, configMap(twin, name, "")) })
	}
	b.quiet()
	b.wire.Set(kubetest.Refuse)
	b.engine.SetConnection(b.connection, false)
	b.there.reset()
	changes := configMap(local, "changes", "")
	b.edit(b.home, changes, func() { changes.Data["key"] = "2" })
	b.must(b.home.Delete(t.Context(), configMap(local, "goes", "")))
	b.must(b.home.Create(t.Context(), configMap(local, "comes", "1")))
	b.must(b.away.Delete(t.Context(), configMap(twin, "stays", "")))
	b.quiet()
	if got := append(b.there.taken(), b.here.taken()...); len(got) != 0 {
		t.Errorf("tried: %v", got)
	}
	b.wire.Set(kubetest.Pass)
	b.engine.SetConnection(b.connection, true)
	begin := time.Now()
	b.until("all is as it should be", func() bool {
		remote := configMap(twin, "changes", "")
		return b.exists(b.away, remote) && remote.Data["key"] == "2" && b.exists(b.away, configMap(twin, "comes", "")) &&
			b.exists(b.away, configMap(twin, "stays", "")) && !b.exists(b.away, configMap(twin, "goes", ""))
	})
	t.Logf("converged after %v", time.Since(begin).Round(time.Millisecond))
	for _, write := range b.there.taken("DELETE") {
		if strings.Contains(write, "without UID") {
			t.Error(write)
		}
	}
}
