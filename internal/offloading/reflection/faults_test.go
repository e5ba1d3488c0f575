// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// losePod deletes the ShadowPod and the pod from the provider, as the loss of its store would.
func (e *env) losePod(provider *fakeProvider, remoteNS, name string) {
	e.t.Helper()
	provider.mu.Lock()
	provider.deleted = append(provider.deleted, name)
	provider.mu.Unlock()
	shadow, pod := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, name)}, &corev1.Pod{ObjectMeta: named(remoteNS, name)}
	e.must(e.provider.Delete(e.t.Context(), shadow))
	e.must(e.provider.Delete(e.t.Context(), pod, client.GracePeriodSeconds(0)))
	e.until("it is gone, and the provider knows", func() bool {
		return !e.exists(e.provider, shadow) && !e.exists(e.provider, pod) && provider.shadows.Get(key(remoteNS, name)) == nil
	})
	provider.mu.Lock()
	provider.deleted = slices.DeleteFunc(provider.deleted, func(one string) bool { return one == name })
	provider.mu.Unlock()
}

// creations returns how often the provider created a pod for this one.
func (p *fakeProvider) creations(pod *corev1.Pod) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range p.created {
		if uid == string(pod.UID) {
			n++
		}
	}
	return n
}

// TestVanishes: a pod that disappeared from the provider with its ShadowPod while no engine ran may have finished. It does not run again, unless its restart
// policy is Always.
func TestVanishes(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	stop := e.run()
	pods := map[string]*corev1.Pod{}
	for name, policy := range map[string]corev1.RestartPolicy{
		"once": corev1.RestartPolicyNever, "well": corev1.RestartPolicyOnFailure,
		"always": corev1.RestartPolicyAlways,
	} {
		pods[name] = e.pod(local, name)
		pods[name].Spec.RestartPolicy = policy
		e.must(e.consumer.Create(t.Context(), pods[name]))
		e.untilPod(local, name, "Ready", isReady)
	}
	stop()
	for name := range pods {
		e.losePod(provider, remoteNS, name)
	}
	e.run()
	e.until("the pod with restart policy Always runs again", func() bool { return provider.creations(pods["always"]) == 2 })
	for _, name := range []string{"once", "well"} {
		pod := e.untilPod(local, name, "failed", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
		if pod.Status.Reason != "OffloadingAborted" || !strings.Contains(pod.Status.Message, "not run again") {
			t.Errorf("%s: %s: %s", name, pod.Status.Reason, pod.Status.Message)
		}
	}
	e.waitIdle()
	for name, want := range map[string]int{"once": 1, "well": 1, "always": 2} {
		if got := provider.creations(pods[name]); got != want {
			t.Errorf("%s was created %d times", name, got)
		}
	}
}

// TestGivenUp: a pod that has failed here does not go on running in the provider.
func TestGivenUp(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	e.run()
	pod := e.pod(local, "web")
	e.must(e.consumer.Create(t.Context(), pod))
	e.untilPod(local, "web", "Ready", isReady)
	text := []byte(`{"status":{"phase":"Failed","reason":"OffloadingAborted"}}`)
	e.must(e.consumer.Status().Patch(t.Context(), &corev1.Pod{ObjectMeta: named(local, "web")}, client.RawPatch(types.MergePatchType, text)))
	e.until("it ends in the provider", func() bool {
		return !e.exists(e.provider, &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "web")}) &&
			!e.exists(e.provider, &corev1.Pod{ObjectMeta: named(remoteNS, "web")})
	})
	e.waitIdle()
	if got := provider.creations(pod); got != 1 {
		t.Errorf("created %d times", got)
	}
}

// TestEndMissed: a pod whose status was never reported ended, and was deleted, while no engine ran.
func TestEndMissed(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	provider.holdReady(true)
	stop := e.run()
	pod := e.pod(local, "quick")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	e.must(e.consumer.Create(t.Context(), pod))
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(remoteNS, "quick")}
	e.until("the remote pod exists", func() bool { return e.exists(e.provider, &corev1.Pod{ObjectMeta: named(remoteNS, "quick")}) })
	stop()
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow))
	shadow.Status.Phase = "Succeeded"
	e.must(e.provider.Status().Update(t.Context(), shadow))
	provider.gone(e, remoteNS, "quick")
	e.must(e.consumer.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if pod.Status.StartTime != nil {
		t.Fatal("a status was reported")
	}
	e.run()
	e.untilPod(local, "quick", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
}

// TestUnreachablePeer: while the peer is unreachable, the engine does not set its pods to Ready.
func TestUnreachablePeer(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	e.untilPod(local, "web", "Ready", isReady)
	e.waitIdle()
	e.proxy.Set(kubetest.Refuse)
	e.reflection.SetConnection(e.connection, false)
	e.toConsumer.reset()
	// The node lifecycle controller does this when the node is not Ready.
	text := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	e.must(e.consumer.Status().Patch(t.Context(), &corev1.Pod{ObjectMeta: named(local, "web")}, client.RawPatch(types.StrategicMergePatchType, text)))
	e.waitIdle()
	if got := e.toConsumer.writesTo(); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
	e.untilPod(local, "web", "not Ready", func(pod *corev1.Pod) bool { return !isReady(pod) })
	e.proxy.Set(kubetest.Pass)
	e.reflection.SetConnection(e.connection, true)
	e.untilPod(local, "web", "Ready", isReady)
	e.waitIdle()
	if got := e.toConsumer.writesTo(); len(got) != 1 {
		t.Errorf("written: %v", got)
	}
}

// TestTolerations: Kubernetes replaces the pods of an unreachable peer after five minutes. If their namespace wants more, the engine extends the tolerations of
// those that run there, except where a user chose the time. A peer that is unreachable for a moment costs no write, and the ShadowPods do not change.
func TestTolerations(t *testing.T) {
	e := newEnv(t)
	timeout := time.Hour
	e.options = func(o *Options) { o.UnreachableTimeout = timeout }
	local, remoteNS := e.offload()
	short, shortRemote := e.offload()
	e.editMap(func(m *vkv1alpha1.NamespaceMap) { m.Spec.UnreachableTolerationSeconds = map[string]int64{local: 3600} })
	provider := e.runProvider(remoteNS)
	e.runProvider(shortRemote)
	stop := e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(short, "short")))
	e.untilPod(short, "short", "Ready", isReady)
	chosen := e.pod(local, "chosen")
	seconds := int64(60)
	chosen.Spec.Tolerations = append(chosen.Spec.Tolerations, corev1.Toleration{
		Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
	})
	for _, pod := range []*corev1.Pod{e.pod(local, "web"), chosen} {
		e.must(e.consumer.Create(t.Context(), pod))
		e.untilPod(local, pod.Name, "Ready", isReady)
	}
	done := e.pod(local, "done")
	done.Spec.RestartPolicy = corev1.RestartPolicyNever
	e.must(e.consumer.Create(t.Context(), done))
	e.untilPod(local, "done", "Ready", isReady)
	over := &corev1.Pod{ObjectMeta: named(remoteNS, "done")}
	e.must(e.provider.Get(t.Context(), client.ObjectKeyFromObject(over), over))
	provider.end(over, corev1.PodSucceeded, 0)
	e.untilPod(local, "done", "ended", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	e.waitIdle()
	e.toConsumer.reset()
	e.toProvider.reset()
	disconnect := func() {
		e.proxy.Set(kubetest.Refuse)
		e.reflection.SetConnection(e.connection, false)
	}
	reconnect := func() {
		e.proxy.Set(kubetest.Pass)
		e.reflection.SetConnection(e.connection, true)
	}
	disconnect()
	reconnect()
	e.waitIdle()
	if got := e.toConsumer.writesTo("/pods/"); len(got) != 0 {
		t.Errorf("written although the peer was unreachable only for a moment: %v", got)
	}
	stop()
	timeout = 200 * time.Millisecond
	e.run()
	e.until("the engine has synced", func() bool { return e.reflection.pods.Remote.Current(remoteNS) })
	disconnect()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "late")))
	toleratedIn := func(namespace, name string) map[string]int64 {
		pod := &corev1.Pod{ObjectMeta: named(namespace, name)}
		e.must(e.consumer.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		found := map[string]int64{}
		for _, toleration := range pod.Spec.Tolerations {
			if toleration.TolerationSeconds != nil {
				found[toleration.Key] = *toleration.TolerationSeconds
			}
		}
		return found
	}
	tolerated := func(name string) map[string]int64 { return toleratedIn(local, name) }
	const hour = 3601
	e.until("the tolerations are extended", func() bool {
		return tolerated("web")[corev1.TaintNodeNotReady] == hour && tolerated("web")[corev1.TaintNodeUnreachable] == hour &&
			tolerated("chosen")[corev1.TaintNodeUnreachable] == hour && tolerated("done")[corev1.TaintNodeNotReady] == hour
	})
	// The step without a limit in between is the only change that makes Kubernetes cancel a scheduled deletion.
	steps := slices.DeleteFunc(e.toConsumer.changesTo("PATCH", "/pods/web"), func(call string) bool { return strings.HasSuffix(call, "/status") })
	if len(steps) != 2 {
		t.Errorf("written %v, want two steps", steps)
	}
	if got := tolerated("chosen")[corev1.TaintNodeNotReady]; got != seconds {
		t.Errorf("tolerated for %d seconds, want the %d that the user chose", got, seconds)
	}
	if got := tolerated("late")[corev1.TaintNodeNotReady]; got != 300 {
		t.Errorf("a pod that does not run in the provider yet tolerates %d seconds", got)
	}
	if got := toleratedIn(short, "short")[corev1.TaintNodeNotReady]; got != 300 {
		t.Errorf("a pod whose namespace wants no more than Kubernetes tolerates %d seconds", got)
	}
	reconnect()
	e.untilPod(local, "late", "Ready", isReady)
	e.waitIdle()
	for _, name := range []string{"web", "chosen"} {
		if got := e.toProvider.writesTo("/shadowpods/" + name); len(got) != 0 {
			t.Errorf("the ShadowPod was changed: %v", got)
		}
	}
	if refused := e.toConsumer.denied.All(); len(refused) != 0 {
		t.Errorf("refused: %v", refused)
	}
}

// TestUnreachableIsNotReady: pods of a peer that does not answer are not Ready, so that Services send them nothing, also if the process starts meanwhile; once
// it answers, they are what they are there.
func TestUnreachableIsNotReady(t *testing.T) {
	e := newEnv(t)
	e.options = func(o *Options) { o.UnreachableTimeout = 200 * time.Millisecond }
	local, remoteNS := e.offload()
	e.runProvider(remoteNS)
	stop := e.run()
	for _, name := range []string{"web", "api"} {
		e.must(e.consumer.Create(t.Context(), e.pod(local, name)))
		e.untilPod(local, name, "Ready", isReady)
	}
	e.waitIdle()
	disconnect := func() {
		e.proxy.Set(kubetest.Refuse)
		e.reflection.SetConnection(e.connection, false)
	}
	unreachable := func(pod *corev1.Pod) bool {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady {
				return condition.Status == corev1.ConditionFalse && condition.Reason == podstatus.ClusterUnreachable && pod.Status.Phase == corev1.PodRunning
			}
		}
		return false
	}
	e.toConsumer.reset()
	disconnect()
	for _, name := range []string{"web", "api"} {
		e.untilPod(local, name, "not Ready", unreachable)
	}
	e.proxy.Set(kubetest.Pass)
	e.reflection.SetConnection(e.connection, true)
	for _, name := range []string{"web", "api"} {
		e.untilPod(local, name, "Ready again", isReady)
	}
	if got := e.toConsumer.writesTo("PATCH", "/pods/web/status"); len(got) != 2 {
		t.Errorf("written: %v", got)
	}
	stop()
	e.proxy.Set(kubetest.Refuse)
	e.run()
	disconnect()
	e.untilPod(local, "web", "not Ready after a start", unreachable)
	e.proxy.Set(kubetest.Pass)
	e.reflection.SetConnection(e.connection, true)
	e.untilPod(local, "web", "Ready at last", isReady)
}

// TestLocalAPIServerDown: a status that could not be written while the local API server was down is written once it is back, without the rest of the backoff.
func TestLocalAPIServerDown(t *testing.T) {
	e := newEnv(t)
	consumer, _ := kubetest.SharedPair(t)
	proxy := kubetest.NewProxy(t, strings.Trim(strings.TrimPrefix(consumer.Host, "https://"), "/"))
	e.kubelet.Host = "https://" + proxy.Address()
	local, remoteNS := e.offload()
	provider := e.runProvider(remoteNS)
	e.run()
	e.must(e.consumer.Create(t.Context(), e.pod(local, "web")))
	e.untilPod(local, "web", "Ready", isReady)
	e.waitIdle()
	proxy.Set(kubetest.Refuse)
	provider.end(&corev1.Pod{ObjectMeta: named(remoteNS, "web")}, corev1.PodFailed, 3)
	q := e.reflection.pods.Inbound
	e.until("it failed three times, and the next try is scheduled", func() bool {
		return q.States()[key(local, "web")].Failures >= 3 && q.Postpone(key(local, "web"), time.Now().Add(24*time.Hour)) // the backoff does not end in this test
	})
	proxy.Set(kubetest.Pass)
	e.untilPod(local, "web", "failed", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
}

// TestLargeObjects: remote objects that are together larger than the limit of one response are compared after a restart.
func TestLargeObjects(t *testing.T) {
	const count, size = 20, 8 << 10
	e := newEnv(t)
	e.toProvider.mostBody = 64 << 10
	local, remoteNS := e.offload()
	stop := e.run()
	for i := range count {
		e.must(e.consumer.Create(t.Context(), configMap(local, fmt.Sprint("large", i), strings.Repeat("x", size))))
	}
	complete := func() bool { return len(e.reflection.objects.Kind("ConfigMap").Remote.All(remoteNS)) == count }
	e.until("all are there", complete)
	e.waitIdle()
	stop()
	e.toConsumer.reset()
	e.toProvider.reset()
	e.run()
	e.until("all are known", complete)
	settings := configMap(local, "settings", "1")
	e.must(e.consumer.Create(t.Context(), settings))
	e.until("another one is also reflected", func() bool { return e.exists(e.provider, configMap(remoteNS, "settings", "")) })
	e.waitIdle()
	if got := append(e.toConsumer.writesTo(), e.toProvider.writesTo()...); len(got) != 1 {
		t.Errorf("written after a restart: %v", got)
	}
}

// TestUndecided: an object that cannot be compared after a restart, because its address cannot be translated yet, delays no other object, and costs no
// write once it can.
func TestUndecided(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	stop := e.run()
	e.must(e.consumer.Create(t.Context(), slice(local, "known-x", "known")))
	odd := slice(local, "unknown-x", "unknown")
	odd.Endpoints[0].Addresses = []string{"10.66.0.1"}
	e.must(e.consumer.Create(t.Context(), odd))
	for _, name := range []string{"known-x", "unknown-x"} {
		e.until(name, func() bool {
			return e.exists(e.provider, &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(remoteNS, name)})
		})
	}
	e.waitIdle()
	stop()
	e.toConsumer.reset()
	e.toProvider.reset()
	learning := &learner{}
	e.options = func(o *Options) { o.Translator = learning }
	e.run()
	e.must(e.consumer.Create(t.Context(), slice(local, "next-x", "next")))
	e.until("the next one", func() bool {
		return e.exists(e.provider, &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(remoteNS, "next-x")})
	})
	learning.knows.Store(true)
	e.reflection.TranslationChanged()
	e.waitIdle()
	if got := e.toProvider.writesTo(); len(got) != 1 {
		t.Errorf("written: %v", got)
	}
}

// learner cannot translate the addresses of one network at first.
type learner struct {
	identityTranslator
	knows atomic.Bool
}

func (l *learner) ToRemote(address netip.Addr) (netip.Addr, error) {
	if !l.knows.Load() && strings.HasPrefix(address.String(), "10.66.") {
		return netip.Addr{}, errors.New("not known yet")
	}
	return l.identityTranslator.ToRemote(address)
}

// goroutines counts the goroutines that run code of this repository, by what created them. Those of connections, which the transport opens and closes as it
// needs them, have none.
func goroutines() map[string]int {
	stacks := make([]byte, 64<<20)
	counts := map[string]int{}
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if _, creator, found := strings.Cut(stack, "\ncreated by "); found && strings.Contains(stack, "liqo.io/liqo/internal/") {
			creator, _, _ = strings.Cut(creator, " in goroutine")
			counts[creator]++
		}
	}
	return counts
}

// TestMappingsLeaveNothing: mappings that start and stop leave no goroutine and no memory.
func TestMappingsLeaveNothing(t *testing.T) {
	e := newEnv(t)
	local, remoteNS := e.offload()
	e.run()
	e.must(e.consumer.Create(t.Context(), configMap(local, "settings", "1")))
	e.until("there", func() bool { return e.exists(e.provider, configMap(remoteNS, "settings", "")) })
	leave := func() {
		e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) { delete(m.Status.CurrentMapping, local) })
		e.until("the mapping ends", func() bool { mapping, _ := e.reflection.engine.Namespaces.Local(local); return mapping == nil })
	}
	leave()
	e.waitIdle()
	before := goroutines()
	e.toProvider.reset()
	for range 25 {
		e.editMapStatus(func(m *vkv1alpha1.NamespaceMap) {
			m.Status.CurrentMapping[local] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: remoteNS, Phase: vkv1alpha1.MappingAccepted}
		})
		e.until("the mapping exists", func() bool { mapping, _ := e.reflection.engine.Namespaces.Local(local); return mapping != nil })
		leave()
	}
	kubetest.Eventually(t, "as few goroutines as before", func() error {
		for creator, count := range goroutines() {
			if count > before[creator] {
				return fmt.Errorf("%d goroutines of %s, before %d", count, creator, before[creator])
			}
		}
		return nil
	})
	if got := append(e.toConsumer.writesTo(), e.toProvider.writesTo()...); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
}
