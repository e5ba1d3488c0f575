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

// TestTokens: a remote pod has a token of this cluster that is valid as long as the local pod exists, and is replaced in time.
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
		t.Error("the token is not valid")
	}
	e.waitIdle()
	if got := e.toProvider.writesTo(); len(got) != 2 {
		t.Errorf("written %v", got)
	}
	if got := e.toConsumer.writesTo("token"); len(got) != 1 {
		t.Errorf("requested tokens: %v", got)
	}
	stop()
	e.toConsumer.reset()
	e.toProvider.reset()
	e.run()
	e.until("the ShadowPod is cached", func() bool { return len(e.reflection.pods.Shadows.All(remoteNS)) == 1 })
	e.waitIdle()
	if got := append(e.toConsumer.writesTo(), e.toProvider.writesTo()...); len(got) != 0 {
		t.Errorf("written after a restart: %v", got)
	}

	replaced := func() bool { return e.exists(e.provider, secret) && tokenOf(secret) != "" && tokenOf(secret) != value }
	e.edit(e.provider, secret, func() {
		secret.Annotations[labels.TokenExpiration] = time.Now().Add(11 * time.Minute).UTC().Format(time.RFC3339)
	})
	e.until("the token is replaced after four fifths of its lifetime", replaced)
	value = tokenOf(secret)
	e.must(e.provider.Delete(t.Context(), secret))
	e.until("the deleted Secret is created again", replaced)
	value = tokenOf(secret)
	if !e.valid(value) {
		t.Error("the token is not valid")
	}
	e.must(e.consumer.Delete(t.Context(), pod))
	e.until("the Secret is deleted with the pod", func() bool { return !e.exists(e.provider, &corev1.Secret{ObjectMeta: named(remoteNS, "web-token")}) })
	e.until("the token is no longer valid", func() bool { return !e.valid(value) })
	if len(e.toConsumer.denied.All())+len(e.toProvider.denied.All()) != 0 {
		t.Errorf("denied: %v %v", e.toConsumer.denied.All(), e.toProvider.denied.All())
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

// TestNoAccount: a pod without its service account gets no token and does not run; an event gives the reason.
func TestNoAccount(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.run()
	pod := withToken(e.pod(local, "web"))
	pod.Spec.ServiceAccountName = "absent"
	e.must(e.consumer.Create(t.Context(), pod))
	e.until("an event", func() bool { return e.event(local, "web", "FailedSATokensReflection", "absent") })
	if e.exists(e.provider, &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}) {
		t.Error("it runs without its token")
	}
	e.must(e.consumer.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: named(local, "absent")}))
	e.until("it runs", func() bool { return e.exists(e.provider, &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}) })
}

// TestEventBeforeItsObject: a warning reaches the user although it arrives before the object that it is about.
func TestEventBeforeItsObject(t *testing.T) {
	for _, kind := range []string{"ShadowPod", "Pod"} {
		t.Run(kind, func(t *testing.T) {
			e := newEnv(t)
			local, remoteNS := e.offload()
			e.runProvider(remoteNS).holdReady(true)
			e.run()
			e.until("the engine has synced", func() bool {
				return e.reflection.pods.Shadows.Current(remoteNS) && e.reflection.pods.Remote.Current(remoteNS) && e.reflection.copier.Source.Current(remoteNS)
			})
			held := "/shadowpods"
			if kind == "Pod" {
				held = "pods" // both: a pod belongs to a local one by its ShadowPod
			}
			release := e.toProvider.hold(held)
			defer release()
			e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
			shadow, remote := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}, &corev1.Pod{ObjectMeta: named(remoteNS, "web")}
			e.until("the remote pod exists", func() bool { return e.exists(e.provider, shadow) && e.exists(e.provider, remote) })
			uid := shadow.UID
			if kind == "Pod" {
				uid = remote.UID
			}
			event := &corev1.Event{
				ObjectMeta: named(remoteNS, "early"), InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: remoteNS, Name: "web", UID: uid},
				Type:   corev1.EventTypeWarning,
				Reason: "NameTaken", Message: "too early", Count: 1, LastTimestamp: metav1.Now(),
			}
			e.must(e.provider.Create(t.Context(), event))
			e.until("the event has arrived", func() bool { return e.reflection.copier.Source.Get(client.ObjectKeyFromObject(event)) != nil })
			if e.reflection.pods.Shadows.Get(client.ObjectKeyFromObject(shadow)) != nil {
				t.Fatal("the ShadowPod has arrived, so this test proves nothing")
			}
			release()
			e.until("the event is copied", func() bool { return e.event(local, "web", "NameTaken", "too early") })
		})
	}
}

// TestEvents: warnings about the remote pod and its ShadowPod are copied to the local pod, and repeated each time their count doubles.
func TestEvents(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	provider.holdReady(true)
	e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	remote := &corev1.Pod{ObjectMeta: named(remoteNS, "web")}
	e.until("the remote pod exists", func() bool { return e.exists(e.provider, remote) })
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
		e.until("the event is copied", func() bool { return e.event(local, "web", "Failed"+about.Kind, "no image") })
	}
	e.waitIdle()
	if e.event(local, "web", "FailedPod", "another") {
		t.Error("an event about another pod is copied")
	}
	e.toConsumer.reset()
	event := &corev1.Event{ObjectMeta: named(remoteNS, "e-pod"+string(remote.UID[:3]))}
	for range 3 {
		e.edit(e.provider, event, func() { event.Count++ })
		e.waitIdle()
	}
	e.until("the last count is copied", func() bool { return len(e.toConsumer.writesTo("/events/")) >= 2 })
	e.waitIdle()
	if got := e.toConsumer.writesTo("/events/"); len(got) != 2 { // for the counts 2 and 4, not for 3
		t.Errorf("written %v", got)
	}
}
