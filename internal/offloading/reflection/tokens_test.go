// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

func withToken(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.ServiceAccountName = "default"
	pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3600)), Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
		},
	}}}}
	return pod
}

// TestTokens: a remote pod has a token of this cluster that works as long as the local pod is there, and is replaced in time.
func TestTokens(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.play(twin)
	stop := b.run()
	b.must(b.home.Create(t.Context(), withToken(b.pod(local, "web"))))
	pod := b.untilPod(local, "web", "Ready", isReady)
	secret := &corev1.Secret{ObjectMeta: named(twin, "web-token")}
	if !b.exists(b.away, secret) || secret.Annotations[labels.TokenPodUID] != string(pod.UID) {
		t.Fatalf("secret %+v", secret.ObjectMeta)
	}
	value := tokenOf(secret)
	if !b.valid(value) {
		t.Error("the token does not work")
	}
	b.quiet()
	if got := b.there.taken(); len(got) != 2 {
		t.Errorf("written %v", got)
	}
	if got := b.here.taken("token"); len(got) != 1 {
		t.Errorf("asked for %v", got)
	}
	stop()
	b.here.reset()
	b.there.reset()
	b.run()
	b.until("all is known", func() bool { return len(b.engine.pods.shadows.All(twin)) == 1 })
	b.quiet()
	if got := append(b.here.taken(), b.there.taken()...); len(got) != 0 {
		t.Errorf("written after a restart: %v", got)
	}

	replaced := func() bool { return b.exists(b.away, secret) && tokenOf(secret) != "" && tokenOf(secret) != value }
	b.edit(b.away, secret, func() {
		secret.Annotations[labels.TokenExpiration] = time.Now().Add(11 * time.Minute).UTC().Format(time.RFC3339)
	})
	b.until("four fifths of its life are over: it is replaced", replaced)
	value = tokenOf(secret)
	b.must(b.away.Delete(t.Context(), secret))
	b.until("somebody took it: there is another one", replaced)
	value = tokenOf(secret)
	if !b.valid(value) {
		t.Error("the token does not work")
	}
	b.must(b.home.Delete(t.Context(), pod))
	b.until("it goes with the pod", func() bool { return !b.exists(b.away, &corev1.Secret{ObjectMeta: named(twin, "web-token")}) })
	b.until("the token is worth nothing", func() bool { return !b.valid(value) })
	if len(b.here.denied)+len(b.there.denied) != 0 {
		t.Errorf("denied: %v %v", b.here.denied, b.there.denied)
	}
}

func tokenOf(secret *corev1.Secret) string {
	for key, value := range secret.Data {
		if strings.HasPrefix(key, "kube-api-access-x-") {
			return string(value)
		}
	}
	return ""
}

func (b *bed) valid(token string) bool {
	b.t.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	b.must(b.home.Create(b.t.Context(), review))
	return review.Status.Authenticated
}

// TestNoAccount: without its account a pod gets no token, does not run, and says why.
func TestNoAccount(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.run()
	pod := withToken(b.pod(local, "web"))
	pod.Spec.ServiceAccountName = "nobody"
	b.must(b.home.Create(t.Context(), pod))
	b.until("an event", func() bool { return b.event(local, "web", "FailedSATokensReflection", "nobody") })
	if b.exists(b.away, &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "web")}) {
		t.Error("it runs without")
	}
	b.must(b.home.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: named(local, "nobody")}))
	b.until("it runs", func() bool { return b.exists(b.away, &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "web")}) })
}

// TestEvents: what the peer warns of is shown on the local pod within a second, and what it refuses.
func TestEvents(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	player := b.play(twin)
	player.hold(true)
	b.run()
	b.must(b.home.Create(t.Context(), b.pod(local, "web")))
	remote := &corev1.Pod{ObjectMeta: named(twin, "web")}
	b.until("it is there", func() bool { return b.exists(b.away, remote) })
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "web")}
	b.must(b.away.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow))
	for _, about := range []corev1.ObjectReference{
		{Kind: "Pod", Namespace: twin, Name: "web", UID: remote.UID},
		{Kind: "ShadowPod", Namespace: twin, Name: "web", UID: shadow.UID},
		{Kind: "Pod", Namespace: twin, Name: "web", UID: "another"},
	} {
		event := &corev1.Event{
			ObjectMeta: named(twin, "e-"+strings.ToLower(about.Kind)+string(about.UID[:3])), InvolvedObject: about, Type: corev1.EventTypeWarning,
			Reason: "Failed" + about.Kind, Message: "no image for " + string(about.UID), Count: 1, LastTimestamp: metav1.Now(),
		}
		b.must(b.away.Create(t.Context(), event))
		if about.UID == "another" {
			continue
		}
		begin := kubetest.NewStopwatch(t)
		b.until("it is shown", func() bool { return b.event(local, "web", "Failed"+about.Kind, "no image") })
		if took := begin.Took(); took > time.Second {
			t.Errorf("%s: shown after %v", about.Kind, took)
		}
	}
	b.quiet()
	if b.event(local, "web", "FailedPod", "another") {
		t.Error("an event of another pod is shown")
	}
	b.here.reset()
	event := &corev1.Event{ObjectMeta: named(twin, "e-pod"+string(remote.UID[:3]))}
	for range 3 {
		b.edit(b.away, event, func() { event.Count++ })
		b.quiet()
	}
	if got := b.here.taken("/events/"); len(got) != 2 { // 2 and 3 are told as one, 4 is told
		t.Errorf("written %v", got)
	}
}
