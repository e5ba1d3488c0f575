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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

func (b *bed) pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "x"}},
		Spec: corev1.PodSpec{
			NodeName: b.node, Containers: []corev1.Container{{Name: "main", Image: "app:1"}}, TerminationGracePeriodSeconds: new(int64(30)),
		},
	}
}

func (b *bed) untilPod(namespace, name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	b.t.Helper()
	pod := &corev1.Pod{ObjectMeta: named(namespace, name)}
	b.until(name+": "+what, func() bool {
		*pod = corev1.Pod{ObjectMeta: named(namespace, name)}
		return b.exists(b.home, pod) && is(pod)
	})
	return pod
}

func isReady(pod *corev1.Pod) bool { return ready(&pod.Status) }

// TestPodLife: a pod runs over there, its status comes back, and it goes.
func TestPodLife(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	player := b.play(twin)
	b.run()
	b.must(b.home.Create(t.Context(), b.pod(local, "web")))
	pod := b.untilPod(local, "web", "Ready", isReady)
	if pod.Labels[labels.ShadowPod] != "true" || pod.Status.PodIP != "10.9.8.7" || pod.Status.HostIP != hostIP || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("labels %v, status %+v", pod.Labels, pod.Status)
	}
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "web")}
	if !b.exists(b.away, shadow) || shadow.Spec.Fence != string(pod.UID) || shadow.Annotations[labels.Fence] != string(pod.UID) {
		t.Errorf("shadow %+v", shadow)
	}
	b.quiet()
	if here, there := b.here.taken(), b.there.taken(); len(here) != 1 || len(there) != 1 {
		t.Errorf("written: %v %v", here, there)
	}

	b.here.reset()
	b.there.reset()
	b.edit(b.away, shadow, func() { shadow.Annotations["their"] = "x" })
	b.quiet()
	if got := append(b.here.taken(), b.there.taken()...); len(got) != 0 {
		t.Errorf("written for what is not ours: %v", got)
	}
	b.must(b.away.Delete(t.Context(), shadow)) // its pod is left, as if the collector were late
	remote := &corev1.Pod{ObjectMeta: named(twin, "web")}
	b.quiet()
	if b.exists(b.away, &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "web")}) {
		t.Error("a second wish while the pod of the first one is there")
	}
	b.must(b.away.Delete(t.Context(), remote, client.GracePeriodSeconds(0)))
	b.until("the wish is made again", func() bool { return b.exists(b.away, shadow) })
	pod = b.untilPod(local, "web", "Ready again", func(pod *corev1.Pod) bool {
		return isReady(pod) && len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].RestartCount == 1
	})

	b.here.reset()
	b.there.reset()
	b.must(b.home.Delete(t.Context(), pod))
	b.until("the pod is gone", func() bool { return !b.exists(b.home, &corev1.Pod{ObjectMeta: named(local, "web")}) })
	if b.exists(b.away, remote) || b.exists(b.away, shadow) {
		t.Error("gone here, and runs there")
	}
	b.quiet()
	if got := b.here.taken("DELETE"); len(got) != 1 || strings.Contains(got[0], "without UID") {
		t.Errorf("deleted here: %v", got)
	}
	if got := b.there.taken("DELETE"); len(got) != 1 || strings.Contains(got[0], "without UID") {
		t.Errorf("deleted there: %v", got)
	}
	if len(b.here.denied)+len(b.there.denied) != 0 {
		t.Errorf("denied: %v %v", b.here.denied, b.there.denied)
	}
	player.mu.Lock()
	defer player.mu.Unlock()
	if len(player.made) != 2 {
		t.Errorf("made %v", player.made)
	}
}

// TestNextOfTheName: another pod of the name runs only when the first one is gone.
func TestNextOfTheName(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.play(twin)
	b.run()
	first := b.pod(local, "db-0")
	b.must(b.home.Create(t.Context(), first))
	b.untilPod(local, "db-0", "Ready", isReady)
	// Somebody removes it by force, and it is made anew at once, faster than it can end over there.
	b.must(b.home.Delete(t.Context(), first, client.GracePeriodSeconds(0)))
	second := b.pod(local, "db-0")
	b.must(b.home.Create(t.Context(), second))
	b.until("the second one has its wish", func() bool {
		shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "db-0")}
		return b.exists(b.away, shadow) && shadow.Spec.Fence == string(second.UID)
	})
	b.untilPod(local, "db-0", "Ready", func(pod *corev1.Pod) bool { return pod.UID == second.UID && isReady(pod) })
}

// TestEnd: a finished pod stays so, and its end is told even if nobody looked when it came.
func TestEnd(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	player := b.play(twin)
	stop := b.run()
	for _, name := range []string{"seen", "missed", "evicted"} {
		pod := b.pod(local, name)
		if name != "evicted" {
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		}
		pod.Finalizers = []string{"test.liqo.io/job-tracking"}
		b.must(b.home.Create(t.Context(), pod))
		b.untilPod(local, name, "Ready", isReady)
	}
	player.end(&corev1.Pod{ObjectMeta: named(twin, "seen")}, corev1.PodSucceeded, 0)
	b.untilPod(local, "seen", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	stop()
	// While nobody looks, one ends, and is cleaned away.
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "missed")}
	b.must(b.away.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow))
	shadow.Status.Phase = "Succeeded"
	b.must(b.away.Status().Update(t.Context(), shadow))
	player.gone(b, twin, "missed")
	// Another one is evicted while it is being deleted: it is made again, so it has not ended.
	evicted := &corev1.Pod{ObjectMeta: named(twin, "evicted")}
	b.must(b.away.Delete(t.Context(), evicted, client.GracePeriodSeconds(600)))
	player.end(evicted, corev1.PodFailed, 137)
	b.run()
	b.untilPod(local, "missed", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	pod := b.untilPod(local, "evicted", "not Ready", func(pod *corev1.Pod) bool { return !isReady(pod) })
	if pod.Status.Phase != corev1.PodRunning {
		t.Errorf("phase %s", pod.Status.Phase)
	}
	// Who holds a pod that is deleted learns that it has ended.
	b.must(b.home.Delete(t.Context(), pod))
	pod = b.untilPod(local, "evicted", "failed", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed && *pod.DeletionGracePeriodSeconds == 0
	})
	b.edit(b.home, pod, func() { pod.Finalizers = nil })
}

// gone takes a pod away for good.
func (p *player) gone(b *bed, twin, name string) {
	b.t.Helper()
	p.mu.Lock()
	p.never = append(p.never, name)
	p.mu.Unlock()
	b.must(b.away.Delete(b.t.Context(), &corev1.Pod{ObjectMeta: named(twin, name)}, client.GracePeriodSeconds(0)))
}

// TestNotOffloaded: pods on the node in a namespace without a twin wait; those that ran have failed once the twin is gone.
func TestNotOffloaded(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	player := b.play(twin)
	other := b.namespaceOf(b.home, "other-")
	b.run()
	b.must(b.home.Create(t.Context(), b.pod(other, "waits")))
	b.untilPod(other, "waits", "waits", func(pod *corev1.Pod) bool { return pod.Status.Reason == "OffloadingBackOff" })
	b.must(b.home.Create(t.Context(), b.pod(local, "runs")))
	done := b.pod(local, "done")
	done.Spec.RestartPolicy = corev1.RestartPolicyNever
	b.must(b.home.Create(t.Context(), done))
	b.untilPod(local, "runs", "Ready", isReady)
	b.untilPod(local, "done", "Ready", isReady)
	player.end(&corev1.Pod{ObjectMeta: named(twin, "done")}, corev1.PodSucceeded, 0)
	b.untilPod(local, "done", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })

	b.mapped(func(m *vkv1alpha1.NamespaceMap) { delete(m.Spec.DesiredMapping, local) })
	b.quiet()
	b.untilPod(local, "runs", "still runs: its twin is there", isReady)
	b.current(func(m *vkv1alpha1.NamespaceMap) { delete(m.Status.CurrentMapping, local) })
	b.untilPod(local, "runs", "aborted", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "OffloadingAborted"
	})
	b.untilPod(local, "done", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	b.quiet()
	writes := len(b.here.taken())
	b.quiet()
	if got := len(b.here.taken()); got != writes {
		t.Errorf("written while idle: %v", b.here.taken())
	}
	for _, pod := range []*corev1.Pod{b.pod(local, "runs"), b.pod(local, "done"), b.pod(other, "waits")} {
		b.must(b.home.Delete(t.Context(), pod))
		b.until(pod.Name+" is gone", func() bool { return !b.exists(b.home, pod) })
	}
}

// TestDeletedWhileDead: a pod that is deleted while the peer is silent stays until it is known that it ended.
func TestDeletedWhileDead(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.play(twin)
	b.run()
	b.must(b.home.Create(t.Context(), b.pod(local, "web")))
	pod := b.untilPod(local, "web", "Ready", isReady)
	b.wire.Set(kubetest.Refuse)
	b.engine.SetConnection(b.connection, false)
	b.must(b.home.Delete(t.Context(), pod))
	b.quiet()
	b.untilPod(local, "web", "is still there", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	b.wire.Set(kubetest.Pass)
	b.engine.SetConnection(b.connection, true)
	b.until("it is gone", func() bool { return !b.exists(b.home, pod) })
	if b.exists(b.away, &corev1.Pod{ObjectMeta: named(twin, "web")}) {
		t.Error("gone here, and runs there")
	}
}

// TestBurst: how long news takes, and how many writes a pod costs.
func TestBurst(t *testing.T) {
	const count = 100
	b := newBed(t)
	local, twin := b.offload()
	player := b.play(twin)
	b.run()
	readyAt := b.watchReady(local)
	begin, machine := time.Now(), kubetest.NewStopwatch(t)
	var making sync.WaitGroup
	for worker := range 4 {
		making.Go(func() {
			for i := worker; i < count; i += 4 {
				if err := b.home.Create(t.Context(), b.pod(local, fmt.Sprint("p", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	making.Wait()
	b.until("all are Ready", func() bool { return len(readyAt()) == count })
	took := time.Since(begin)
	stood := machine.Stood()
	b.quiet()
	var delays []time.Duration
	player.mu.Lock()
	for name, at := range readyAt() {
		delays = append(delays, at.Sub(player.readyAt[name]))
	}
	player.mu.Unlock()
	slices.Sort(delays)
	t.Logf("%d pods in %v; remote Ready to local Ready: p50 %v, p99 %v; writes here %d, there %d", count, took.Round(time.Millisecond),
		delays[count/2].Round(time.Millisecond), delays[count*99/100].Round(time.Millisecond), len(b.here.taken()), len(b.there.taken()))
	if got := len(b.there.taken()); got != count {
		t.Errorf("%d writes over there, want %d", got, count)
	}
	if got := len(b.here.taken("status")); got > 2*count {
		t.Errorf("%d writes of status, want %d at most", got, 2*count)
	}
	if p99 := delays[count*99/100]; p99 > stood+2*time.Second {
		t.Errorf("p99 %v, and the machine stood still for %v", p99, stood)
	}
}

// watchReady notes when local pods become Ready.
func (b *bed) watchReady(namespace string) func() map[string]time.Time {
	b.t.Helper()
	w, err := b.home.Watch(b.t.Context(), &corev1.PodList{}, client.InNamespace(namespace))
	b.must(err)
	b.t.Cleanup(w.Stop)
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
