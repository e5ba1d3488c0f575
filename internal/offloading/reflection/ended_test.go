// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// TestEndedAndGone: a pod that is to run once has ended, and somebody took its wish away before that was told here. It does not run again.
func TestEndedAndGone(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	player := b.play(twin)
	b.run()
	pod := b.pod(local, "once")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	b.must(b.home.Create(t.Context(), pod))
	b.untilPod(local, "once", "Ready", isReady)
	b.quiet()
	b.engine.pods.back.pause() // its news do not get through yet
	remote := &corev1.Pod{ObjectMeta: named(twin, "once")}
	b.must(b.away.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
	player.end(remote, corev1.PodSucceeded, 0)
	b.must(b.home.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	b.until("its end is kept while it is there", func() bool { return b.engine.pods.lastOf(pod) != nil })
	b.there.reset()
	b.takeAway(player, twin, "once")
	b.until("the engine knows", func() bool {
		return b.engine.pods.shadows.Get(client.ObjectKeyFromObject(remote)) == nil && b.engine.pods.remote.Get(client.ObjectKeyFromObject(remote)) == nil
	})
	b.quiet()
	if got := b.there.taken("shadowpods"); len(got) != 0 || player.times(pod) != 1 {
		t.Errorf("after its end: %v, made %d times", got, player.times(pod))
	}
	b.engine.pods.back.resume()
	b.untilPod(local, "once", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	b.quiet()
	if b.exists(b.away, &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "once")}) || player.times(pod) != 1 {
		t.Errorf("it runs again, made %d times", player.times(pod))
	}
}

// TestTokensOfShortLife: an API server may give tokens a shorter life than was asked for.
func TestTokensOfShortLife(t *testing.T) {
	requests := []project.TokenRequest{{ExpirationSeconds: 86400}}
	secret := &metav1.PartialObjectMetadata{}
	secret.Annotations = map[string]string{labels.TokenExpiration: time.Now().Add(time.Hour).UTC().Format(time.RFC3339), labels.TokenLifetime: "3600"}
	if wait := left(secret, requests); wait < 47*time.Minute || wait > 49*time.Minute {
		t.Errorf("tokens that live for an hour are replaced after %v", wait)
	}
	delete(secret.Annotations, labels.TokenLifetime) // one of before
	if wait := left(secret, requests); wait > 0 {
		t.Errorf("it is not known how long they live, and they stay for %v", wait)
	}
}

// TestTokensHaveTheirTime: whoever has a token has an appointment for the next one, whatever came first, the Secret or the pod.
func TestTokensHaveTheirTime(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.play(twin)
	b.run()
	for i := range 10 {
		name := fmt.Sprintf("web-%d", i)
		b.must(b.home.Create(t.Context(), withToken(b.pod(local, name))))
		b.untilPod(local, name, "Ready", isReady)
	}
	b.quiet()
	q := b.engine.tokens.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range 10 {
		if s := q.states[types.NamespacedName{Namespace: local, Name: fmt.Sprintf("web-%d", i)}]; s == nil || s.at.Before(time.Now().Add(time.Minute)) {
			t.Errorf("nobody thinks of the next token of pod %d: %+v", i, s)
		}
	}
}

// TestTokensAfterRestart: tokens whose time came while nobody looked are replaced by who comes next, without anything having to happen.
func TestTokensAfterRestart(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.play(twin)
	for i := range 10 { // of the three that have to be known, another one is the last each time
		stop := b.run()
		name := fmt.Sprintf("web-%d", i)
		b.must(b.home.Create(t.Context(), withToken(b.pod(local, name))))
		b.untilPod(local, name, "Ready", isReady)
		b.quiet()
		stop()
		secret := &corev1.Secret{ObjectMeta: named(twin, name+"-token")}
		b.edit(b.away, secret, func() {
			secret.Annotations[labels.TokenExpiration] = time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		})
		value := tokenOf(secret)
		stop = b.run()
		b.until("the token is replaced", func() bool { return b.exists(b.away, secret) && tokenOf(secret) != value })
		stop()
	}
}
