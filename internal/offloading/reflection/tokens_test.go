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
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	stop := e.run()
	e.must(e.consumer.Create(t.Context(), withToken(e.pod(local, "web"))))
	pod := e.untilPod(local, "web", "Ready", isReady)
	secret := &corev1.Secret{ObjectMeta: named(remoteNS, "web-token")}
	if !e.exists(e.provider, secret) || secret.Annotations[labels.TokenPodUID] != string(pod.UID) {
		t.Fatalf("secret %+v", secret.ObjectMeta)
	}
	value := tokenOf(secret)
	if !e.valid(value) {
		t.Error("the token does not work")
	}
	e.waitIdle()
	if got := e.toProvider.matching(); len(got) != 2 {
		t.Errorf("written %v", got)
	}
	if got := e.toConsumer.matching("token"); len(got) != 1 {
		t.Errorf("asked for %v", got)
	}
	stop()
	e.toConsumer.reset()
	e.toProvider.reset()
	e.run()
	e.until("all is known", func() bool { return len(e.engine.pods.shadows.All(remoteNS)) == 1 })
	e.waitIdle()
	if got := append(e.toConsumer.matching(), e.toProvider.matching()...); len(got) != 0 {
		t.Errorf("written after a restart: %v", got)
	}

	replaced := func() bool { return e.exists(e.provider, secret) && tokenOf(secret) != "" && tokenOf(secret) != value }
	e.edit(e.provider, secret, func() {
		secret.Annotations[labels.TokenExpiration] = time.Now().Add(11 * time.Minute).UTC().Format(time.RFC3339)
	})
	e.until("four fifths of its life are over: it is replaced", replaced)
	value = tokenOf(secret)
	e.must(e.provider.Delete(t.Context(), secret))
	e.until("somebody took it: there is another one", replaced)
	value = tokenOf(secret)
	if !e.valid(value) {
		t.Error("the token does not work")
	}
	e.must(e.consumer.Delete(t.Context(), pod))
	e.until("it goes with the pod", func() bool { return !e.exists(e.provider, &corev1.Secret{ObjectMeta: named(remoteNS, "web-token")}) })
	e.until("the token is worth nothing", func() bool { return !e.valid(value) })
	if len(e.toConsumer.denied)+len(e.toProvider.denied) != 0 {
		t.Errorf("denied: %v %v", e.toConsumer.denied, e.toProvider.denied)
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

func (e *env) valid(token string) bool {
	e.t.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	e.must(e.consumer.Create(e.t.Context(), review))
	return review.Status.Authenticated
}

// TestNoAccount: without its account a pod gets no token, does not run, and says why.
func TestNoAccount(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.run()
	pod := withToken(e.pod(local, "web"))
	pod.Spec.ServiceAccountName = "nobody"
	e.must(e.consumer.Create(t.Context(), pod))
	e.until("an event", func() bool { return e.event(local, "web", "FailedSATokensReflection", "nobody") })
	if e.exists(e.provider, &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}) {
		t.Error("it runs without")
	}
	e.must(e.consumer.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: named(local, "nobody")}))
	e.until("it runs", func() bool { return e.exists(e.provider, &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}) })
}

// TestEvents: what the peer warns of is shown on the local pod within a second, and what it refuses.
func TestEvents(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	provider.holdReady(true)
	e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	remote := &corev1.Pod{ObjectMeta: named(remoteNS, "web")}
	e.until("it is there", func() bool { return e.exists(e.provider, remote) })
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow))
	for _, about := range []corev1.ObjectReference{
		{Kind: "Pod", Namespace: remoteNS, Name: "web", UID: remote.UID},
		{Kind: "ShadowPod", Namespace: remoteNS, Name: "web", UID: shadow.UID},
		{Kind: "Pod", Namespace: remoteNS, Name: "web", UID: "another"},
	} {
		event := &corev1.Event{
			ObjectMeta: named(remoteNS, "e-"+strings.ToLower(about.Kind)+string(about.UID[:3])), InvolvedObject: about, Type: corev1.EventTypeWarning,
			Reason: "Failed" + about.Kind, Message: "no image for " + string(about.UID), Count: 1, LastTimestamp: metav1.Now(),
		}
		e.must(e.provider.Create(t.Context(), event))
		if about.UID == "another" {
			continue
		}
		begin := kubetest.NewStopwatch(t)
		e.until("it is shown", func() bool { return e.event(local, "web", "Failed"+about.Kind, "no image") })
		if took := begin.Took(); took > time.Second {
			t.Errorf("%s: shown after %v", about.Kind, took)
		}
	}
	e.waitIdle()
	if e.event(local, "web", "FailedPod", "another") {
		t.Error("an event of another pod is shown")
	}
	e.toConsumer.reset()
	event := &corev1.Event{ObjectMeta: named(remoteNS, "e-pod"+string(remote.UID[:3]))}
	for range 3 {
		e.edit(e.provider, event, func() { event.Count++ })
		e.waitIdle()
	}
	if got := e.toConsumer.matching("/events/"); len(got) != 2 { // 2 and 3 are told as one, 4 is told
		t.Errorf("written %v", got)
	}
}
