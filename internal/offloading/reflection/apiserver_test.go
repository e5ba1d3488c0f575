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
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

// excludeAPIServer keeps pods in these namespaces, and only in these, from our API server. If the engine runs, it waits until that knows.
func (e *env) excludeAPIServer(namespaces ...string) {
	e.t.Helper()
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { m.Spec.WithoutAPIServer = namespaces })
	if e.reflection == nil {
		return
	}
	e.until("the policy is known", func() bool {
		known := true
		e.reflection.engine.Namespaces.Each(func(one *engine.Mapping) {
			known = known && one.APIServer() != slices.Contains(namespaces, one.Local)
		})
		return known
	})
}

// access waits for a ShadowPod and returns what of the access to our API server it has: a host alias, variables, tokens, and their Secret.
func (e *env) access(remoteNS, name string) string {
	e.t.Helper()
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, name)}
	e.until(name+" exists", func() bool { return e.exists(e.provider, shadow) })
	var has []string
	pod := &shadow.Spec.Pod
	if len(pod.HostAliases) > 0 {
		has = append(has, "alias")
	}
	if slices.ContainsFunc(pod.Containers[0].Env, func(one corev1.EnvVar) bool { return strings.HasPrefix(one.Name, "KUBERNETES_") }) {
		has = append(has, "env")
	}
	if podspec.MountsTokens(pod, name) {
		has = append(has, "tokens")
	}
	if e.exists(e.provider, &corev1.Secret{ObjectMeta: named(remoteNS, name+"-token")}) {
		has = append(has, "secret")
	}
	return strings.Join(has, " ")
}

func (e *env) wantAccess(remoteNS, name, want string) {
	e.t.Helper()
	if got := e.access(remoteNS, name); got != want {
		e.t.Errorf("%s/%s has %q, want %q", remoteNS, name, got, want)
	}
}

const fullAccess = "alias env tokens secret"

// TestWithoutAPIServer: pods in a namespace that excludes the API server get no access to it, pods in other namespaces get it, and a change of the policy
// applies to pods created from then on.
func TestWithoutAPIServer(t *testing.T) {
	e := newEnv(t)
	e.options = func(o *Options) {
		o.APIServer = func() (podspec.APIServer, error) {
			return podspec.APIServer{Enabled: true, Address: netip.MustParseAddr("10.60.0.1"), ServicePort: "443"}, nil
		}
	}
	vault, vaultRemote := e.offload()
	shop, shopRemote := e.offload()
	e.runProvider(vaultRemote)
	e.runProvider(shopRemote)
	e.excludeAPIServer(vault)
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
	e.wantAccess(vaultRemote, "first", "")
	e.wantAccess(shopRemote, "first", fullAccess)
	if requested := e.toConsumer.writesTo("token"); len(requested) != 1 || !strings.Contains(requested[0], shop) {
		t.Errorf("requested tokens: %v", requested)
	}

	// The policies are swapped while the engine runs.
	e.toConsumer.reset()
	e.toProvider.reset()
	e.excludeAPIServer(shop)
	start("second")
	e.wantAccess(vaultRemote, "second", fullAccess)
	e.wantAccess(shopRemote, "second", "")
	e.wantAccess(vaultRemote, "first", "")
	e.wantAccess(shopRemote, "first", fullAccess)
	if requested, written := e.toConsumer.writesTo("token"), e.toProvider.writesTo(); len(requested) != 1 || !strings.Contains(requested[0], vault) ||
		len(written) != 3 {
		t.Errorf("requested tokens: %v, written %v", requested, written)
	}

	// No event renews the tokens of an excluded namespace: neither expiration, nor a deleted Secret, nor a restart.
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
	e.until("the ShadowPods are cached", func() bool { return len(e.reflection.pods.Shadows.All(shopRemote)) == 2 })
	e.edit(e.consumer, &corev1.Pod{ObjectMeta: named(shop, "first")}, func() {})
	e.waitIdle()
	if requested, written := e.toConsumer.writesTo("token"), e.toProvider.writesTo(); len(requested) != 0 || len(written) != 0 {
		t.Errorf("requested tokens: %v, written after a restart: %v", requested, written)
	}

	// Once no namespace is excluded, the tokens of pods created with tokens are renewed again, and those of no other pod.
	e.excludeAPIServer()
	e.until("the deleted Secret is created again", func() bool { return e.access(shopRemote, "first") == fullAccess })
	e.waitIdle()
	e.wantAccess(shopRemote, "second", "")
	e.wantAccess(vaultRemote, "first", "")
	if requested := e.toConsumer.writesTo("token"); len(requested) != 1 {
		t.Errorf("requested tokens: %v", requested)
	}
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(shopRemote, "second")}
	e.must(e.provider.Delete(t.Context(), shadow, client.PropagationPolicy("Foreground")))
	e.until("a ShadowPod that is created again has access", func() bool { return e.access(shopRemote, "second") == fullAccess })
	if len(e.toConsumer.denied.All())+len(e.toProvider.denied.All()) != 0 {
		t.Errorf("denied: %v %v", e.toConsumer.denied.All(), e.toProvider.denied.All())
	}
}
