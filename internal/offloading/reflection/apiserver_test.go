// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// without offloads these namespaces without the API server, and all others with it. It returns when the engine knows, if that runs.
func (e *env) without(namespaces ...string) {
	e.t.Helper()
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { m.Spec.WithoutAPIServer = namespaces })
	if e.engine == nil {
		return
	}
	e.until("the policy is known", func() bool {
		known := true
		e.engine.mappings.each(func(one *mapping) {
			known = known && one.apiServer.Load() != slices.Contains(namespaces, one.Local)
		})
		return known
	})
}

// made waits for a pod over there, and says what it was made with: a host alias, variables, tokens, and the Secret of these.
func (e *env) made(remoteNS, name string) string {
	e.t.Helper()
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, name)}
	e.until(name+" is there", func() bool { return e.exists(e.provider, shadow) })
	var has []string
	pod := &shadow.Spec.Pod
	if len(pod.HostAliases) > 0 {
		has = append(has, "alias")
	}
	if slices.ContainsFunc(pod.Containers[0].Env, func(one corev1.EnvVar) bool { return strings.HasPrefix(one.Name, "KUBERNETES_") }) {
		has = append(has, "env")
	}
	if project.MountsTokens(pod, name) {
		has = append(has, "tokens")
	}
	if e.exists(e.provider, &corev1.Secret{ObjectMeta: named(remoteNS, name+"-token")}) {
		has = append(has, "secret")
	}
	return strings.Join(has, " ")
}

func (e *env) want(remoteNS, name, want string) {
	e.t.Helper()
	if got := e.made(remoteNS, name); got != want {
		e.t.Errorf("%s/%s was made with %q, want %q", remoteNS, name, got, want)
	}
}

const allOfIt = "alias env tokens secret"

// TestWithoutAPIServer: pods of a namespace that is offloaded without the API server get nothing of it, those of another one all of it, and a
// change is for pods that are made from then on.
func TestWithoutAPIServer(t *testing.T) {
	e := newEnv(t)
	e.options = func(o *Options) {
		o.APIServer = func() (project.APIServer, error) {
			return project.APIServer{Enabled: true, Address: netip.MustParseAddr("10.60.0.1"), ServicePort: "443"}, nil
		}
	}
	vault, vaultRemote := e.offload()
	shop, shopRemote := e.offload()
	e.runProvider(vaultRemote)
	e.runProvider(shopRemote)
	e.without(vault)
	stop := e.run()
	start := func(name string) {
		t.Helper()
		for _, namespace := range []string{vault, shop} {
			e.must(e.consumer.Create(t.Context(), withToken(e.pod(namespace, name))))
			e.untilPod(namespace, name, "Ready", isReady)
		}
		e.waitIdle()
	}
	start("first")
	e.want(vaultRemote, "first", "")
	e.want(shopRemote, "first", allOfIt)
	if asked := e.toConsumer.matching("token"); len(asked) != 1 || !strings.Contains(asked[0], shop) {
		t.Errorf("asked for %v", asked)
	}

	// The other way round, while it runs.
	e.toConsumer.reset()
	e.toProvider.reset()
	e.without(shop)
	start("second")
	e.want(vaultRemote, "second", allOfIt)
	e.want(shopRemote, "second", "")
	e.want(vaultRemote, "first", "")
	e.want(shopRemote, "first", allOfIt)
	if asked, written := e.toConsumer.matching("token"), e.toProvider.matching(); len(asked) != 1 || !strings.Contains(asked[0], vault) || len(written) != 3 {
		t.Errorf("asked for %v, written %v", asked, written)
	}

	// Nothing is renewed, by whatever it would be.
	e.toConsumer.reset()
	secret := &corev1.Secret{ObjectMeta: named(shopRemote, "first-token")}
	e.edit(e.provider, secret, func() {
		secret.Annotations[labels.TokenExpiration] = time.Now().Add(11 * time.Minute).UTC().Format(time.RFC3339)
	})
	e.waitIdle()
	e.must(e.provider.Delete(t.Context(), secret))
	e.waitIdle()
	stop()
	e.toProvider.reset()
	e.run()
	e.until("all is known", func() bool { return len(e.engine.pods.shadows.All(shopRemote)) == 2 })
	e.edit(e.consumer, &corev1.Pod{ObjectMeta: named(shop, "first")}, func() {})
	e.waitIdle()
	if asked, written := e.toConsumer.matching("token"), e.toProvider.matching(); len(asked) != 0 || len(written) != 0 {
		t.Errorf("asked for %v, written after a restart: %v", asked, written)
	}

	// And back: renewal goes on for those that were made with tokens, and for no other.
	e.without()
	e.until("what was lost is there again", func() bool { return e.made(shopRemote, "first") == allOfIt })
	e.waitIdle()
	e.want(shopRemote, "second", "")
	e.want(vaultRemote, "first", "")
	if asked := e.toConsumer.matching("token"); len(asked) != 1 {
		t.Errorf("asked for %v", asked)
	}
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(shopRemote, "second")}
	e.must(e.provider.Delete(t.Context(), shadow, client.PropagationPolicy("Foreground")))
	e.until("one that is made again has them", func() bool { return e.made(shopRemote, "second") == allOfIt })
	if len(e.toConsumer.denied)+len(e.toProvider.denied) != 0 {
		t.Errorf("denied: %v %v", e.toConsumer.denied, e.toProvider.denied)
	}
}

// TestAPIServerByMap: the policy is that of the NamespaceMap, from the moment that the namespace is known, and only of our own.
func TestAPIServerByMap(t *testing.T) {
	p := newMappings(&Engine{counts: newCounters(&Options{})})
	p.ctx = t.Context()
	world := func(without ...string) *vkv1alpha1.NamespaceMap {
		m := &vkv1alpha1.NamespaceMap{}
		m.Spec.DesiredMapping = map[string]string{"shop": "shop-x", "vault": "vault-x"}
		m.Spec.WithoutAPIServer = without
		m.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{}
		for local, remote := range m.Spec.DesiredMapping {
			m.Status.CurrentMapping[local] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: vkv1alpha1.MappingAccepted}
		}
		return m
	}
	theirs := world()
	theirs.Labels = map[string]string{labels.Replicated: "true"}
	ending := world()
	delete(ending.Spec.DesiredMapping, "vault")
	for _, step := range []struct {
		name  string
		comes *vkv1alpha1.NamespaceMap
		want  string
	}{
		{"at first", world("vault"), "shop"},
		{"what the peer wants", theirs, "shop"},
		{"the map is gone", nil, "shop"},
		{"none", world("vault", "shop"), ""},
		{"both", world(), "shop vault"},
		{"no more", world("vault"), "shop"},
		{"unoffloaded", ending, "shop"},
		{"offloaded again", world(), "shop vault"},
	} {
		var comes client.Object
		if step.comes != nil {
			comes = step.comes
		}
		p.update(comes)
		var may []string
		p.each(func(one *mapping) {
			if one.apiServer.Load() {
				may = append(may, one.Local)
			}
		})
		slices.Sort(may)
		if got := strings.Join(may, " "); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}
