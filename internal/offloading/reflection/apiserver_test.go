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
func (b *bed) without(namespaces ...string) {
	b.t.Helper()
	b.mapped(func(m *vkv1alpha1.NamespaceMap) { m.Spec.WithoutAPIServer = namespaces })
	if b.engine == nil {
		return
	}
	b.until("the policy is known", func() bool {
		known := true
		b.engine.pairs.each(func(one *pair) {
			known = known && one.apiServer.Load() != slices.Contains(namespaces, one.link.Local)
		})
		return known
	})
}

// made waits for a pod over there, and says what it was made with: a host alias, variables, tokens, and the Secret of these.
func (b *bed) made(twin, name string) string {
	b.t.Helper()
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, name)}
	b.until(name+" is there", func() bool { return b.exists(b.away, shadow) })
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
	if b.exists(b.away, &corev1.Secret{ObjectMeta: named(twin, name+"-token")}) {
		has = append(has, "secret")
	}
	return strings.Join(has, " ")
}

func (b *bed) want(twin, name, want string) {
	b.t.Helper()
	if got := b.made(twin, name); got != want {
		b.t.Errorf("%s/%s was made with %q, want %q", twin, name, got, want)
	}
}

const allOfIt = "alias env tokens secret"

// TestWithoutAPIServer: pods of a namespace that is offloaded without the API server get nothing of it, those of another one all of it, and a
// change is for pods that are made from then on.
func TestWithoutAPIServer(t *testing.T) {
	b := newBed(t)
	b.options = func(o *Options) {
		o.APIServer = func() (project.APIServer, error) {
			return project.APIServer{Enabled: true, Address: netip.MustParseAddr("10.60.0.1"), ServicePort: "443"}, nil
		}
	}
	vault, vaultTwin := b.offload()
	shop, shopTwin := b.offload()
	b.play(vaultTwin)
	b.play(shopTwin)
	b.without(vault)
	stop := b.run()
	start := func(name string) {
		t.Helper()
		for _, namespace := range []string{vault, shop} {
			b.must(b.home.Create(t.Context(), withToken(b.pod(namespace, name))))
			b.untilPod(namespace, name, "Ready", isReady)
		}
		b.quiet()
	}
	start("first")
	b.want(vaultTwin, "first", "")
	b.want(shopTwin, "first", allOfIt)
	if asked := b.here.taken("token"); len(asked) != 1 || !strings.Contains(asked[0], shop) {
		t.Errorf("asked for %v", asked)
	}

	// The other way round, while it runs.
	b.here.reset()
	b.there.reset()
	b.without(shop)
	start("second")
	b.want(vaultTwin, "second", allOfIt)
	b.want(shopTwin, "second", "")
	b.want(vaultTwin, "first", "")
	b.want(shopTwin, "first", allOfIt)
	if asked, written := b.here.taken("token"), b.there.taken(); len(asked) != 1 || !strings.Contains(asked[0], vault) || len(written) != 3 {
		t.Errorf("asked for %v, written %v", asked, written)
	}

	// Nothing is renewed, by whatever it would be.
	b.here.reset()
	secret := &corev1.Secret{ObjectMeta: named(shopTwin, "first-token")}
	b.edit(b.away, secret, func() {
		secret.Annotations[labels.TokenExpiration] = time.Now().Add(11 * time.Minute).UTC().Format(time.RFC3339)
	})
	b.quiet()
	b.must(b.away.Delete(t.Context(), secret))
	b.quiet()
	stop()
	b.there.reset()
	b.run()
	b.until("all is known", func() bool { return len(b.engine.pods.shadows.All(shopTwin)) == 2 })
	b.edit(b.home, &corev1.Pod{ObjectMeta: named(shop, "first")}, func() {})
	b.quiet()
	if asked, written := b.here.taken("token"), b.there.taken(); len(asked) != 0 || len(written) != 0 {
		t.Errorf("asked for %v, written after a restart: %v", asked, written)
	}

	// And back: renewal goes on for those that were made with tokens, and for no other.
	b.without()
	b.until("what was lost is there again", func() bool { return b.made(shopTwin, "first") == allOfIt })
	b.quiet()
	b.want(shopTwin, "second", "")
	b.want(vaultTwin, "first", "")
	if asked := b.here.taken("token"); len(asked) != 1 {
		t.Errorf("asked for %v", asked)
	}
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(shopTwin, "second")}
	b.must(b.away.Delete(t.Context(), shadow, client.PropagationPolicy("Foreground")))
	b.until("one that is made again has them", func() bool { return b.made(shopTwin, "second") == allOfIt })
	if len(b.here.denied)+len(b.there.denied) != 0 {
		t.Errorf("denied: %v %v", b.here.denied, b.there.denied)
	}
}

// TestAPIServerByMap: the policy is that of the NamespaceMap, from the moment that the namespace is known, and only of our own.
func TestAPIServerByMap(t *testing.T) {
	p := newPairs(&Engine{counts: newCounters(&Options{})})
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
		p.each(func(one *pair) {
			if one.apiServer.Load() {
				may = append(may, one.link.Local)
			}
		})
		slices.Sort(may)
		if got := strings.Join(may, " "); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
	}
}
