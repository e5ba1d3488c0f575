// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/offloading/podplan"
)

func (e *env) pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "x"}},
		Spec: corev1.PodSpec{
			NodeName: e.node, Containers: []corev1.Container{{Name: "main", Image: "app:1"}}, TerminationGracePeriodSeconds: new(int64(30)),
		},
	}
}

func (e *env) untilPod(namespace, name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	e.t.Helper()
	pod := &corev1.Pod{ObjectMeta: named(namespace, name)}
	e.until(name+": "+what, func() bool {
		*pod = corev1.Pod{ObjectMeta: named(namespace, name)}
		return e.exists(e.consumer, pod) && is(pod)
	})
	return pod
}

func isReady(pod *corev1.Pod) bool { return podplan.Ready(&pod.Status) }

// TestPodLife: a pod runs in the provider, its status is reported here, and it is deleted.
func TestPodLife(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	e.run()
	e.until("the engine has synced", func() bool {
		return e.reflection.pods.Shadows.Current(remoteNS) && e.reflection.pods.Remote.Current(remoteNS)
	})
	// A pod that is Pending for longer than the debounce costs another write.
	release := e.toProvider.hold("/pods")
	defer release()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	remote := &corev1.Pod{ObjectMeta: named(remoteNS, "web")}
	e.until("the remote pod is Ready", func() bool { return e.exists(e.provider, remote) && isReady(remote) })
	release()
	pod := e.untilPod(local, "web", "Ready", isReady)
	if pod.Labels[labels.ShadowPod] != "true" || pod.Status.PodIP != "10.9.8.7" || pod.Status.HostIP != hostIP || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("labels %v, status %+v", pod.Labels, pod.Status)
	}
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}
	if !e.exists(e.provider, shadow) || shadow.Spec.Fence != string(pod.UID) || shadow.Annotations[labels.Fence] != string(pod.UID) {
		t.Errorf("shadow %+v", shadow)
	}
	e.waitIdle()
	if here, there := e.toConsumer.writesTo(), e.toProvider.writesTo(); len(here) != 1 || len(there) != 1 {
		t.Errorf("written: %v %v", here, there)
	}

	e.toConsumer.reset()
	e.toProvider.reset()
	e.edit(e.provider, shadow, func() { shadow.Annotations["their"] = "x" })
	e.waitIdle()
	if got := append(e.toConsumer.writesTo(), e.toProvider.writesTo()...); len(got) != 0 {
		t.Errorf("written after another client changed a field that is not ours: %v", got)
	}
	e.must(e.provider.Delete(t.Context(), shadow)) // its pod stays, as if the garbage collector were late
	e.waitIdle()
	if e.exists(e.provider, &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}) {
		t.Error("a second ShadowPod while the pod of the first one exists")
	}
	e.must(e.provider.Delete(t.Context(), remote, client.GracePeriodSeconds(0)))
	e.until("the ShadowPod is created again", func() bool { return e.exists(e.provider, shadow) })
	pod = e.untilPod(local, "web", "Ready again", func(pod *corev1.Pod) bool {
		return isReady(pod) && len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].RestartCount == 1
	})

	e.toConsumer.reset()
	e.toProvider.reset()
	e.must(e.consumer.Delete(t.Context(), pod))
	e.until("the pod is gone", func() bool { return !e.exists(e.consumer, &corev1.Pod{ObjectMeta: named(local, "web")}) })
	if e.exists(e.provider, remote) || e.exists(e.provider, shadow) {
		t.Error("the pod is gone here, but the provider still has it")
	}
	e.waitIdle()
	if got := e.toConsumer.writesTo("DELETE"); len(got) != 1 || strings.Contains(got[0], "without UID") {
		t.Errorf("deleted localKind: %v", got)
	}
	// While the cache is behind, the deletion may be repeated, which changes nothing.
	if got := slices.Compact(e.toProvider.writesTo("DELETE")); len(got) != 1 || strings.Contains(got[0], "without UID") {
		t.Errorf("deleted in the provider: %v", got)
	}
	if len(e.toConsumer.denied.All())+len(e.toProvider.denied.All()) != 0 {
		t.Errorf("denied: %v %v", e.toConsumer.denied.All(), e.toProvider.denied.All())
	}
	provider.mu.Lock()
	defer provider.mu.Unlock()
	if len(provider.created) != 2 {
		t.Errorf("created %v", provider.created)
	}
}

// TestSuccessor: another pod of the same name runs only once the first one is gone.
func TestSuccessor(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	first := e.pod(local, "db-0")
	e.must(e.consumer.Create(t.Context(), first))
	e.untilPod(local, "db-0", "Ready", isReady)
	// A user deletes it by force and creates another one at once, faster than the first can end in the provider.
	e.must(e.consumer.Delete(t.Context(), first, client.GracePeriodSeconds(0)))
	second := e.pod(local, "db-0")
	e.must(e.consumer.Create(t.Context(), second))
	e.until("the second one has its ShadowPod", func() bool {
		shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "db-0")}
		return e.exists(e.provider, shadow) && shadow.Spec.Fence == string(second.UID)
	})
	e.untilPod(local, "db-0", "Ready", func(pod *corev1.Pod) bool { return pod.UID == second.UID && isReady(pod) })
}

// TestEnd: a finished pod stays finished, and its end is reported even if no engine ran when it ended.
func TestEnd(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	stop := e.run()
	for _, name := range []string{"seen", "missed", "evicted"} {
		pod := e.pod(local, name)
		if name != "evicted" {
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		}
		pod.Finalizers = []string{"test.liqo.io/job-tracking"}
		e.must(e.consumer.Create(t.Context(), pod))
		e.untilPod(local, name, "Ready", isReady)
	}
	provider.end(&corev1.Pod{ObjectMeta: named(remoteNS, "seen")}, corev1.PodSucceeded, 0)
	e.untilPod(local, "seen", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	stop()
	// While no engine runs, one pod ends and is deleted.
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "missed")}
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow))
	shadow.Status.Phase = "Succeeded"
	e.must(e.provider.Status().Update(t.Context(), shadow))
	provider.gone(e, remoteNS, "missed")
	// Another one is evicted: the provider creates it again, so it has not ended.
	evicted := &corev1.Pod{ObjectMeta: named(remoteNS, "evicted")}
	e.must(e.provider.Delete(t.Context(), evicted, client.GracePeriodSeconds(600)))
	provider.end(evicted, corev1.PodFailed, 137)
	e.run()
	e.untilPod(local, "missed", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	pod := e.untilPod(local, "evicted", "not Ready", func(pod *corev1.Pod) bool { return !isReady(pod) })
	if pod.Status.Phase != corev1.PodRunning {
		t.Errorf("phase %s", pod.Status.Phase)
	}
	// The owner of a finalizer sees the end of a pod that is being deleted.
	e.must(e.consumer.Delete(t.Context(), pod))
	pod = e.untilPod(local, "evicted", "failed", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed && *pod.DeletionGracePeriodSeconds == 0
	})
	e.edit(e.consumer, pod, func() { pod.Finalizers = nil })
}

// gone deletes a pod, and keeps the provider from creating it again.
func (p *fakeProvider) gone(e *env, remoteNS, name string) {
	e.t.Helper()
	p.mu.Lock()
	p.deleted = append(p.deleted, name)
	p.mu.Unlock()
	e.must(e.provider.Delete(e.t.Context(), &corev1.Pod{ObjectMeta: named(remoteNS, name)}, client.GracePeriodSeconds(0)))
}

// TestNotOffloaded: pods on the node in a namespace without a remote namespace are Pending; pods that ran are Failed once the remote namespace is gone.
func TestNotOffloaded(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	other := e.namespaceOf(e.consumer, "other-")
	e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(other, "waits")))
	e.untilPod(other, "waits", "waits", func(pod *corev1.Pod) bool { return pod.Status.Reason == "OffloadingBackOff" })
	e.must(e.consumer.Create(t.Context(), e.pod(local, "runs")))
	done := e.pod(local, "done")
	done.Spec.RestartPolicy = corev1.RestartPolicyNever
	e.must(e.consumer.Create(t.Context(), done))
	e.untilPod(local, "runs", "Ready", isReady)
	e.untilPod(local, "done", "Ready", isReady)
	provider.end(&corev1.Pod{ObjectMeta: named(remoteNS, "done")}, corev1.PodSucceeded, 0)
	e.untilPod(local, "done", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })

	e.editMap(func(m *vkv1alpha1.NamespaceMap) { delete(m.Spec.DesiredMapping, local) })
	e.waitIdle()
	e.untilPod(local, "runs", "still runs: its remote namespace exists", isReady)
	e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) { delete(m.Status.CurrentMapping, local) })
	e.untilPod(local, "runs", "aborted", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "OffloadingAborted"
	})
	e.untilPod(local, "done", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	e.waitIdle()
	writes := len(e.toConsumer.writesTo())
	e.waitIdle()
	if got := len(e.toConsumer.writesTo()); got != writes {
		t.Errorf("written while idle: %v", e.toConsumer.writesTo())
	}
	for _, pod := range []*corev1.Pod{e.pod(local, "runs"), e.pod(local, "done"), e.pod(other, "waits")} {
		e.must(e.consumer.Delete(t.Context(), pod))
		e.until(pod.Name+" is gone", func() bool { return !e.exists(e.consumer, pod) })
	}
}

// TestDeletedWhileUnreachable: a pod that is deleted while the peer is unreachable stays until it is known that it ended.
func TestDeletedWhileUnreachable(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	pod := e.untilPod(local, "web", "Ready", isReady)
	e.proxy.Set(kubetest.Refuse)
	e.reflection.SetConnection(e.connection, false)
	e.must(e.consumer.Delete(t.Context(), pod))
	e.waitIdle()
	e.untilPod(local, "web", "is still there", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	e.proxy.Set(kubetest.Pass)
	e.reflection.SetConnection(e.connection, true)
	e.until("it is gone", func() bool { return !e.exists(e.consumer, pod) })
	if e.exists(e.provider, &corev1.Pod{ObjectMeta: named(remoteNS, "web")}) {
		t.Error("the pod is gone here, but the provider still has it")
	}
}

// TestBurst counts the writes of a burst of pods, and logs how long their statuses take.
func TestBurst(t *testing.T) {
	const count = 40
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	e.run()
	readyAt := e.watchReady(local)
	start := time.Now()
	var creating sync.WaitGroup
	for worker := range 4 {
		creating.Go(func() {
			for i := worker; i < count; i += 4 {
				if err := e.consumer.Create(t.Context(), e.pod(local, fmt.Sprint("p", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()
	e.until("all are Ready", func() bool { return len(readyAt()) == count })
	took := time.Since(start)
	e.waitIdle()
	var delays []time.Duration
	provider.mu.Lock()
	for name, at := range readyAt() {
		delays = append(delays, at.Sub(provider.readyAt[name]))
	}
	provider.mu.Unlock()
	slices.Sort(delays)
	t.Logf("%d pods in %v; remote Ready to local Ready: p50 %v, p99 %v; writes in the consumer %d, in the provider %d", count, took.Round(time.Millisecond),
		delays[count/2].Round(time.Millisecond), delays[count*99/100].Round(time.Millisecond), len(e.toConsumer.writesTo()), len(e.toProvider.writesTo()))
	if got := len(e.toProvider.writesTo()); got != count {
		t.Errorf("%d writes in the provider, want %d", got, count)
	}
	if got := len(e.toConsumer.writesTo("status")); got > 2*count {
		t.Errorf("%d writes of status, want %d at most", got, 2*count)
	}
}

// watchReady returns a function with the times at which local pods became Ready.
func (e *env) watchReady(namespace string) func() map[string]time.Time {
	e.t.Helper()
	w, err := e.consumer.Watch(e.t.Context(), &corev1.PodList{}, client.InNamespace(namespace))
	e.must(err)
	e.t.Cleanup(w.Stop)
	var mu sync.Mutex
	at := map[string]time.Time{}
	go func() {
		for event := range w.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && isReady(pod) {
				mu.Lock()
				if at[pod.Name].IsZero() {
					at[pod.Name] = time.Now()
				}
				mu.Unlock()
			}
		}
	}()
	return func() map[string]time.Time {
		mu.Lock()
		defer mu.Unlock()
		all := map[string]time.Time{}
		for name, moment := range at {
			all[name] = moment
		}
		return all
	}
}

// TestFinalizerOfTheProvider: the provider adds the finalizer that keeps a ShadowPod until its pod is gone. That costs no write of ours, also after a restart,
// and the next ShadowPod has it from the start.
func TestFinalizerOfTheProvider(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	stop := e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	e.untilPod(local, "web", "Ready", isReady)
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow))
	e.toProvider.reset()
	e.edit(e.provider, shadow, func() { shadow.Finalizers = []string{labels.FinalizerPodGone} })
	cached := func() bool {
		one := e.reflection.pods.Shadows.Get(client.ObjectKeyFromObject(shadow))
		return one != nil && len(one.GetFinalizers()) > 0
	}
	unwritten := func(when string) {
		t.Helper()
		e.until(when+", the finalizer is seen", cached)
		e.waitIdle()
		if got := e.toProvider.writesTo(); len(got) != 0 {
			t.Errorf("written %s: %v", when, got)
		}
	}
	unwritten("when it was added")
	stop()
	e.run()
	unwritten("after a restart")

	e.must(e.consumer.Create(t.Context(), e.pod(local, "next")))
	e.untilPod(local, "next", "Ready", isReady)
	next := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "next")}
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(next), next))
	if !slices.Equal(next.Finalizers, []string{labels.FinalizerPodGone}) {
		t.Errorf("finalizers of the next one: %v", next.Finalizers)
	}
	for _, one := range []*vkv1alpha1.ShadowPod{shadow, next} { // the provider of this test knows no finalizer
		e.must(e.provider.Patch(t.Context(), one, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	}
}
