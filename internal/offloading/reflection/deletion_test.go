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

// mayDelete gives the right to delete in twins, or takes it away, and waits until that counts.
func (b *bed) mayDelete(twin string, may bool) {
	b.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: b.identity.Namespace}}
	b.edit(b.away, role, func() {
		for i := range role.Rules {
			verbs := slices.DeleteFunc(role.Rules[i].Verbs, func(verb string) bool { return verb == "delete" })
			if may {
				verbs = append(verbs, "delete")
			}
			role.Rules[i].Verbs = verbs
		}
	})
	for _, what := range []authorizationv1.ResourceAttributes{{Resource: "configmaps"}, {Group: "virtualkubelet.liqo.io", Resource: "shadowpods"}} {
		what.Namespace, what.Verb = twin, "delete"
		b.counts(b.away, b.identity.Namespace, may, what)
	}
}

// TestDeletionRefused: who waits for something to go learns why it does not; and it goes when it may.
func TestDeletionRefused(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.play(twin)
	b.run()
	pod := b.pod(local, "web")
	b.must(b.home.Create(t.Context(), pod))
	b.untilPod(local, "web", "Ready", isReady)
	config := &corev1.ConfigMap{ObjectMeta: named(local, "config")}
	b.must(b.home.Create(t.Context(), config))
	copied := &corev1.ConfigMap{ObjectMeta: named(twin, "config")}
	b.until("it is there", func() bool { return b.exists(b.away, copied) })

	b.mayDelete(twin, false)
	b.must(b.home.Delete(t.Context(), pod))
	b.edit(b.home, config, func() { config.Annotations = map[string]string{labels.SkipReflection: ""} })
	b.until("it is told of the pod", func() bool { return b.event(local, "web", "FailedDeletion", "forbidden") })
	b.until("it is told of the ConfigMap", func() bool { return b.event(local, "config", "FailedDeletion", "forbidden") })
	b.mayDelete(twin, true)
	b.until("all is gone", func() bool { return !b.exists(b.home, pod) && !b.exists(b.away, copied) })
}

// TestMarkOfTokens: that an object looks like a Secret with tokens does not make its copy one.
func TestMarkOfTokens(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.run()
	secret := &corev1.Secret{ObjectMeta: named(local, "nobody-token"), Data: map[string][]byte{"k": []byte("v")}}
	secret.Labels = map[string]string{labels.TokenPod: "nobody", labels.TokenServiceAccount: "default"}
	b.must(b.home.Create(t.Context(), secret))
	copied := &corev1.Secret{ObjectMeta: named(twin, "nobody-token")}
	b.until("it is there", func() bool { return b.exists(b.away, copied) })
	b.until("all is known that says whose tokens are there", func() bool {
		pods := b.engine.pods
		return pods.local.Current(fanin.Every) && pods.shadows.Synced(twin) && b.engine.tokens.secrets().Synced(twin)
	})
	b.engine.tokens.queue.add(key(local, "nobody"))
	b.quiet()
	if written := b.there.taken(); len(written) != 1 || !b.exists(b.away, copied) {
		t.Errorf("written %v", written)
	}
	b.must(b.home.Delete(t.Context(), secret))
	b.until("it is gone", func() bool { return !b.exists(b.away, copied) })
}
