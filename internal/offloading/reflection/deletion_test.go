// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fanin"
)

// mayDelete grants or revokes the right to delete in remote namespaces, and waits until the API server knows.
func (e *env) mayDelete(remoteNS string, may bool) {
	e.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: e.identity.Namespace}}
	e.edit(e.provider, role, func() {
		for i := range role.Rules {
			verbs := slices.DeleteFunc(role.Rules[i].Verbs, func(verb string) bool { return verb == "delete" })
			if may {
				verbs = append(verbs, "delete")
			}
			role.Rules[i].Verbs = verbs
		}
	})
	for _, what := range []authorizationv1.ResourceAttributes{{Resource: "configmaps"}, {Group: "virtualkubelet.liqo.io", Resource: "shadowpods"}} {
		what.Namespace, what.Verb = remoteNS, "delete"
		e.waitForAccess(e.provider, e.identity.Namespace, may, what)
	}
}

// TestDeletionRefused: if the peer refuses a deletion, an event on the local object gives the reason, and the deletion succeeds once the peer allows it.
func TestDeletionRefused(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	pod := e.pod(local, "web")
	e.must(e.consumer.Create(t.Context(), pod))
	e.untilPod(local, "web", "Ready", isReady)
	config := &corev1.ConfigMap{ObjectMeta: named(local, "config")}
	e.must(e.consumer.Create(t.Context(), config))
	copied := &corev1.ConfigMap{ObjectMeta: named(remoteNS, "config")}
	e.until("the copy exists", func() bool { return e.exists(e.provider, copied) })

	e.mayDelete(remoteNS, false)
	e.must(e.consumer.Delete(t.Context(), pod))
	e.edit(e.consumer, config, func() { config.Annotations = map[string]string{labels.SkipReflection: ""} })
	e.until("an event on the pod", func() bool { return e.event(local, "web", "FailedDeletion", "forbidden") })
	e.until("an event on the ConfigMap", func() bool { return e.event(local, "config", "FailedDeletion", "forbidden") })
	e.mayDelete(remoteNS, true)
	e.until("all is gone", func() bool { return !e.exists(e.consumer, pod) && !e.exists(e.provider, copied) })
}

// TestForgedTokenSecret: a Secret with the labels of a token Secret is reflected as any other.
func TestForgedTokenSecret(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.run()
	secret := &corev1.Secret{ObjectMeta: named(local, "absent-token"), Data: map[string][]byte{"k": []byte("v")}}
	secret.Labels = map[string]string{labels.TokenPod: "absent", labels.TokenServiceAccount: "default"}
	e.must(e.consumer.Create(t.Context(), secret))
	copied := &corev1.Secret{ObjectMeta: named(remoteNS, "absent-token")}
	e.until("the copy exists", func() bool { return e.exists(e.provider, copied) })
	e.until("the caches of pods, ShadowPods and token Secrets are filled", func() bool {
		pods := e.reflection.pods
		return pods.Local.Current(fanin.Every) && pods.Shadows.Synced(remoteNS) && e.reflection.tokens.Synced(remoteNS)
	})
	e.reflection.tokens.Queue.Add(key(local, "absent"))
	e.waitIdle()
	if written := e.toProvider.writesTo(); len(written) != 1 || !e.exists(e.provider, copied) {
		t.Errorf("written %v", written)
	}
	e.must(e.consumer.Delete(t.Context(), secret))
	e.until("it is gone", func() bool { return !e.exists(e.provider, copied) })
}
