// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// TestEndedAndGone: a pod with restart policy Never ended, and its ShadowPod was deleted before we reported that. The pod does not run again.
func TestEndedAndGone(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	e.run()
	pod := e.pod(local, "once")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	e.must(e.consumer.Create(t.Context(), pod))
	e.untilPod(local, "once", "Ready", isReady)
	e.waitIdle()
	e.reflection.pods.Inbound.Pause() // its end is observed, but not reported yet
	remote := &corev1.Pod{ObjectMeta: named(remoteNS, "once")}
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
	provider.end(remote, corev1.PodSucceeded, 0)
	e.must(e.consumer.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	e.until("the engine remembers its end while the remote pod exists", func() bool { return e.reflection.pods.Memory(pod.UID).Last != nil })
	e.toProvider.reset()
	e.losePod(provider, remoteNS, "once")
	e.until("the engine knows", func() bool {
		return e.reflection.pods.Shadows.Get(client.ObjectKeyFromObject(remote)) == nil && e.reflection.pods.Remote.Get(client.ObjectKeyFromObject(remote)) == nil
	})
	e.waitIdle()
	if got := e.toProvider.writesTo("shadowpods"); len(got) != 0 || provider.creations(pod) != 1 {
		t.Errorf("after its end: %v, created %d times", got, provider.creations(pod))
	}
	e.reflection.pods.Inbound.Resume()
	e.untilPod(local, "once", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	e.waitIdle()
	if e.exists(e.provider, &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "once")}) || provider.creations(pod) != 1 {
		t.Errorf("it runs again, created %d times", provider.creations(pod))
	}
}

// TestEndedAndNotOffloaded: a pod ended, and its namespace is no longer offloaded when that is to be reported. The holder of its finalizer still gets its end.
func TestEndedAndNotOffloaded(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	e.run()
	pod := e.pod(local, "once")
	pod.Spec.RestartPolicy, pod.Finalizers = corev1.RestartPolicyNever, []string{"test.liqo.io/job-tracking"}
	e.must(e.consumer.Create(t.Context(), pod))
	e.untilPod(local, "once", "Ready", isReady)
	e.waitIdle()
	e.reflection.pods.Inbound.Pause()
	remote := &corev1.Pod{ObjectMeta: named(remoteNS, "once")}
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
	provider.end(remote, corev1.PodSucceeded, 0)
	e.must(e.consumer.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	e.until("the engine remembers its end", func() bool { return e.reflection.pods.Memory(pod.UID).Last != nil })
	e.must(e.consumer.Delete(t.Context(), pod))
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { delete(m.Spec.DesiredMapping, local) })
	e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) { delete(m.Status.CurrentMapping, local) })
	e.until("the engine knows", func() bool {
		mapping, _ := e.reflection.engine.Namespaces.Local(local)
		cached, _ := e.reflection.pods.Local.Get(key(local, "once")).(*corev1.Pod)
		return mapping == nil && cached != nil && cached.DeletionTimestamp != nil
	})
	e.reflection.pods.Inbound.Resume()
	pod = e.untilPod(local, "once", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	e.edit(e.consumer, pod, func() { pod.Finalizers = nil })
	e.until("it is gone", func() bool { return !e.exists(e.consumer, pod) })
}

// TestTokensHaveTheirTime: the renewal of every pod's token is scheduled, whether the cache received the Secret or the ShadowPod first.
func TestTokensHaveTheirTime(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	for i := range 10 {
		name := fmt.Sprintf("web-%d", i)
		e.must(e.consumer.Create(t.Context(), withToken(e.pod(local, name))))
		e.untilPod(local, name, "Ready", isReady)
	}
	e.waitIdle()
	for i := range 10 {
		if s := e.reflection.tokens.Queue.States()[key(local, fmt.Sprintf("web-%d", i))]; s.At.Before(time.Now().Add(time.Minute)) {
			t.Errorf("the next token of pod %d is not scheduled: %+v", i, s)
		}
	}
}

// TestTokensAfterRestart: tokens that came due while no process ran are replaced by the next process, without any event.
func TestTokensAfterRestart(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	for i := range 10 { // three caches have to be filled first, in an order that varies
		stop := e.run()
		name := fmt.Sprintf("web-%d", i)
		e.must(e.consumer.Create(t.Context(), withToken(e.pod(local, name))))
		e.untilPod(local, name, "Ready", isReady)
		e.waitIdle()
		stop()
		secret := &corev1.Secret{ObjectMeta: named(remoteNS, name+"-token")}
		e.edit(e.provider, secret, func() {
			secret.Annotations[labels.TokenExpiration] = time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		})
		value := tokenOf(secret)
		stop = e.run()
		e.until("the token is replaced", func() bool { return e.exists(e.provider, secret) && tokenOf(secret) != value })
		stop()
	}
}

// TestDisruptionTarget: the disruption controller of this cluster resets the condition of a pod that is not being deleted after two minutes, and we do not set
// it again. Once the pod has ended with it, it is reported, because the policy of a Job may ask for it.
func TestDisruptionTarget(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	pod := e.pod(local, "job")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	e.must(e.consumer.Create(t.Context(), pod))
	e.untilPod(local, "job", "Ready", isReady)
	status := func(c client.Client, namespace, status string) {
		e.must(c.Status().Patch(t.Context(), &corev1.Pod{ObjectMeta: named(namespace, "job")},
			client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":`+status+`}`))))
	}
	disrupted := func(pod *corev1.Pod) corev1.ConditionStatus {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.DisruptionTarget {
				return condition.Status
			}
		}
		return ""
	}
	// The taint manager of the provider evicts the pod, and the kubelet of its node does not answer, so the pod stays.
	status(e.provider, remoteNS,
		`{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"DeletionByTaintManager"},{"type":"Ready","status":"False"}]}`)
	e.must(e.provider.Delete(t.Context(), &corev1.Pod{ObjectMeta: named(remoteNS, "job")}, client.GracePeriodSeconds(3600)))
	if got := disrupted(e.untilPod(local, "job", "not Ready", func(pod *corev1.Pod) bool { return !isReady(pod) })); got != "" {
		t.Errorf("DisruptionTarget is %s while the pod runs", got)
	}
	status(e.consumer, local, `{"conditions":[{"type":"DisruptionTarget","status":"False"}]}`)
	e.waitIdle()
	e.until("no write is due", func() bool { return e.reflection.pods.Inbound.States()[key(local, "job")].At.IsZero() })
	if got := disrupted(e.untilPod(local, "job", "as it was reset", func(*corev1.Pod) bool { return true })); got != corev1.ConditionFalse {
		t.Errorf("DisruptionTarget is %s after it was reset", got)
	}
	status(e.provider, remoteNS, `{"phase":"Failed"}`)
	e.untilPod(local, "job", "failed, and disrupted", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed && disrupted(pod) == corev1.ConditionTrue
	})
}
