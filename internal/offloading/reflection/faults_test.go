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
)

// away takes all of a pod from the provider, as the loss of its store would.
func (b *bed) takeAway(player *player, twin, name string) {
	b.t.Helper()
	player.mu.Lock()
	player.never = append(player.never, name)
	player.mu.Unlock()
	shadow, pod := &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, name)}, &corev1.Pod{ObjectMeta: named(twin, name)}
	b.must(b.away.Delete(b.t.Context(), shadow))
	b.must(b.away.Delete(b.t.Context(), pod, client.GracePeriodSeconds(0)))
	b.until("it is gone", func() bool { return !b.exists(b.away, shadow) && !b.exists(b.away, pod) })
	player.mu.Lock()
	player.never = slices.DeleteFunc(player.never, func(one string) bool { return one == name })
	player.mu.Unlock()
}

// made is how often the provider made a pod of this one.
func (p *player) times(pod *corev1.Pod) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range p.made {
		if uid == string(pod.UID) {
			n++
		}
	}
	return n
}

// TestVanishes: what is gone from the provider, with its ShadowPod and while nobody looked, may have finished. It is not run again, unless it
// is one that runs until it is deleted.
func TestVanishes(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	player := b.play(twin)
	stop := b.run()
	pods := map[string]*corev1.Pod{}
	for name, policy := range map[string]corev1.RestartPolicy{"once": corev1.RestartPolicyNever, "well": corev1.RestartPolicyOnFailure, "always": corev1.RestartPolicyAlways} {
		pods[name] = b.pod(local, name)
		pods[name].Spec.RestartPolicy = policy
		b.must(b.home.Create(t.Context(), pods[name]))
		b.untilPod(local, name, "Ready", isReady)
	}
	stop()
	for name := range pods {
		b.takeAway(player, twin, name)
	}
	b.run()
	b.until("what always runs does", func() bool { return player.times(pods["always"]) == 2 })
	for _, name := range []string{"once", "well"} {
		pod := b.untilPod(local, name, "failed", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
		if pod.Status.Reason != "OffloadingAborted" || !strings.Contains(pod.Status.Message, "not run again") {
			t.Errorf("%s: %s: %s", name, pod.Status.Reason, pod.Status.Message)
		}
	}
	b.quiet()
	for name, want := range map[string]int{"once": 1, "well": 1, "always": 2} {
		if got := player.times(pods[name]); got != want {
			t.Errorf("%s was made %d times", name, got)
		}
	}
}

// TestGivenUp: what has failed here does not go on over there.
func TestGivenUp(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	player := b.play(twin)
	b.run()
	pod := b.pod(local, "web")
	b.must(b.home.Create(t.Context(), pod))
	b.untilPod(local, "web", "Ready", isReady)
	text := []byte(`{"status":{"phase":"Failed","reason":"OffloadingAborted"}}`)
	b.must(b.home.Status().Patch(t.Context(), &corev1.Pod{ObjectMeta: named(local, "web")}, client.RawPatch(types.MergePatchType, text)))
	b.until("it ends there", func() bool {
		return !b.exists(b.away, &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "web")}) && !b.exists(b.away, &corev1.Pod{ObjectMeta: named(twin, "web")})
	})
	b.quiet()
	if got := player.times(pod); got != 1 {
		t.Errorf("made %d times", got)
	}
}

// TestMissedBeforeTold: a pod of which nothing had been told ended, and was cleaned away, while nobody looked.
func TestMissedBeforeTold(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	player := b.play(twin)
	player.hold(true)
	stop := b.run()
	pod := b.pod(local, "quick")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	b.must(b.home.Create(t.Context(), pod))
	shadow := &vkv1alpha1.ShadowPod{ObjectMeta: named(twin, "quick")}
	b.until("it is there", func() bool { return b.exists(b.away, &corev1.Pod{ObjectMeta: named(twin, "quick")}) })
	stop()
	b.must(b.away.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow))
	shadow.Status.Phase = "Succeeded"
	b.must(b.away.Status().Update(t.Context(), shadow))
	player.gone(b, twin, "quick")
	b.must(b.home.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if pod.Status.StartTime != nil {
		t.Fatal("something was told")
	}
	b.run()
	b.untilPod(local, "quick", "succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
}

// TestSilentPeer: while a peer does not answer, nobody claims that its pods are Ready.
func TestSilentPeer(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.play(twin)
	b.run()
	b.must(b.home.Create(t.Context(), b.pod(local, "web")))
	b.untilPod(local, "web", "Ready", isReady)
	b.quiet()
	b.wire.Set(kubetest.Refuse)
	b.engine.SetConnection(b.connection, false)
	b.here.reset()
	// Kubernetes' controller of nodes does this when the node is not Ready.
	text := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	b.must(b.home.Status().Patch(t.Context(), &corev1.Pod{ObjectMeta: named(local, "web")}, client.RawPatch(types.StrategicMergePatchType, text)))
	b.quiet()
	if got := b.here.taken(); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
	b.untilPod(local, "web", "not Ready", func(pod *corev1.Pod) bool { return !isReady(pod) })
	b.wire.Set(kubetest.Pass)
	b.engine.SetConnection(b.connection, true)
	b.untilPod(local, "web", "Ready", isReady)
	b.quiet()
	if got := b.here.taken(); len(got) != 1 {
		t.Errorf("written: %v", got)
	}
}

// TestPatience: Kubernetes would replace pods of a silent peer after five minutes. Those that are there are kept for longer, but for whose
// owner chose the time; a peer that was away for a moment costs nothing, and nothing of it crosses.
func TestPatience(t *testing.T) {
	b := newBed(t)
	b.options = func(o *Options) { o.Patience = 400 * time.Millisecond }
	local, twin := b.offload()
	player := b.play(twin)
	b.run()
	chosen := b.pod(local, "chosen")
	seconds := int64(60)
	chosen.Spec.Tolerations = append(chosen.Spec.Tolerations, corev1.Toleration{
		Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
	})
	for _, pod := range []*corev1.Pod{b.pod(local, "web"), chosen} {
		b.must(b.home.Create(t.Context(), pod))
		b.untilPod(local, pod.Name, "Ready", isReady)
	}
	done := b.pod(local, "done")
	done.Spec.RestartPolicy = corev1.RestartPolicyNever
	b.must(b.home.Create(t.Context(), done))
	b.untilPod(local, "done", "Ready", isReady)
	over := &corev1.Pod{ObjectMeta: named(twin, "done")}
	b.must(b.away.Get(t.Context(), client.ObjectKeyFromObject(over), over))
	player.end(over, corev1.PodSucceeded, 0)
	b.untilPod(local, "done", "ended", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	b.quiet()
	b.here.reset()
	b.there.reset()
	silence := func() {
		b.wire.Set(kubetest.Refuse)
		b.engine.SetConnection(b.connection, false)
	}
	back := func() {
		b.wire.Set(kubetest.Pass)
		b.engine.SetConnection(b.connection, true)
	}
	silence()
	back()
	b.quiet()
	if got := b.here.taken("/pods/"); len(got) != 0 {
		t.Errorf("written for a moment's silence: %v", got)
	}
	silence()
	b.must(b.home.Create(t.Context(), b.pod(local, "late")))
	tolerated := func(name string) map[string]int64 {
		pod := &corev1.Pod{ObjectMeta: named(local, name)}
		b.must(b.home.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		found := map[string]int64{}
		for _, toleration := range pod.Spec.Tolerations {
			if toleration.TolerationSeconds != nil {
				found[toleration.Key] = *toleration.TolerationSeconds
			}
		}
		return found
	}
	const hour = 3601
	b.until("it is kept", func() bool {
		return tolerated("web")[corev1.TaintNodeNotReady] == hour && tolerated("web")[corev1.TaintNodeUnreachable] == hour &&
			tolerated("chosen")[corev1.TaintNodeUnreachable] == hour && tolerated("done")[corev1.TaintNodeNotReady] == hour
	})
	// Without end in between: nothing else makes Kubernetes drop a deletion that it has scheduled.
	if got := b.here.taken("PATCH", "/pods/web"); len(got) != 2 {
		t.Errorf("written %v, want two steps", got)
	}
	if got := tolerated("chosen")[corev1.TaintNodeNotReady]; got != seconds {
		t.Errorf("tolerated for %d seconds, want the %d that were chosen", got, seconds)
	}
	if got := tolerated("late")[corev1.TaintNodeNotReady]; got != 300 {
		t.Errorf("a pod that does not run there yet is kept for %d seconds", got)
	}
	back()
	b.untilPod(local, "late", "Ready", isReady)
	b.quiet()
	for _, name := range []string{"web", "chosen"} {
		if got := b.there.taken("/shadowpods/" + name); len(got) != 0 {
			t.Errorf("it crossed: %v", got)
		}
	}
	b.here.mu.Lock()
	defer b.here.mu.Unlock()
	if len(b.here.denied) != 0 {
		t.Errorf("refused: %v", b.here.denied)
	}
}

// TestHomeAway: what was to be told while the local API server was away is told soon after it is back, however long it was.
func TestHomeAway(t *testing.T) {
	b := newBed(t)
	consumer, _ := kubetest.SharedPair(t)
	wire := kubetest.NewProxy(t, strings.Trim(strings.TrimPrefix(consumer.Host, "https://"), "/"))
	b.kubelet.Host = "https://" + wire.Address()
	local, twin := b.offload()
	player := b.play(twin)
	b.run()
	b.must(b.home.Create(t.Context(), b.pod(local, "web")))
	b.untilPod(local, "web", "Ready", isReady)
	b.quiet()
	wire.Set(kubetest.Refuse)
	player.end(&corev1.Pod{ObjectMeta: named(twin, "web")}, corev1.PodFailed, 3)
	key := types.NamespacedName{Namespace: local, Name: "web"}
	b.until("it failed nine times", func() bool {
		b.engine.pods.back.mu.Lock()
		defer b.engine.pods.back.mu.Unlock()
		s := b.engine.pods.back.states[key]
		return s != nil && s.failures >= 9 // the next try is 13 to 16 s away
	})
	wire.Set(kubetest.Pass)
	begin := time.Now()
	b.untilPod(local, "web", "failed", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	if took := time.Since(begin); took > 9*time.Second {
		t.Errorf("told after %v", took)
	}
}

// TestLargeObjects: what is there is compared after a restart, however large it is.
func TestLargeObjects(t *testing.T) {
	const count = 24 // together more than is read of an answer
	b := newBed(t)
	local, twin := b.offload()
	stop := b.run()
	for i := range count {
		b.must(b.home.Create(t.Context(), configMap(local, fmt.Sprint("large", i), strings.Repeat("x", 1000<<10))))
	}
	complete := func() bool { return len(b.engine.reflector("ConfigMap").remote.All(twin)) == count }
	b.until("all are there", complete)
	b.quiet()
	stop()
	b.here.reset()
	b.there.reset()
	b.run()
	b.until("all are known", complete)
	settings := configMap(local, "settings", "1")
	b.must(b.home.Create(t.Context(), settings))
	b.until("the next one comes, too", func() bool { return b.exists(b.away, configMap(twin, "settings", "")) })
	b.quiet()
	if got := append(b.here.taken(), b.there.taken()...); len(got) != 1 {
		t.Errorf("written after a restart: %v", got)
	}
}

// TestUndecided: what cannot be compared after a restart, as its address is not known yet, holds up nothing else, and costs no write once
// it can.
func TestUndecided(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	stop := b.run()
	b.must(b.home.Create(t.Context(), slice(local, "known-x", "known")))
	odd := slice(local, "unknown-x", "unknown")
	odd.Endpoints[0].Addresses = []string{"10.66.0.1"}
	b.must(b.home.Create(t.Context(), odd))
	for _, name := range []string{"known-x", "unknown-x"} {
		b.until(name, func() bool { return b.exists(b.away, &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(twin, name)}) })
	}
	b.quiet()
	stop()
	b.here.reset()
	b.there.reset()
	learning := &learner{}
	b.options = func(o *Options) { o.Translator = learning }
	b.run()
	b.must(b.home.Create(t.Context(), slice(local, "next-x", "next")))
	b.until("the next one", func() bool {
		return b.exists(b.away, &vkv1alpha1.ShadowEndpointSlice{ObjectMeta: named(twin, "next-x")})
	})
	learning.knows.Store(true)
	b.engine.TranslationChanged()
	b.quiet()
	if got := b.there.taken(); len(got) != 1 {
		t.Errorf("written: %v", got)
	}
}

// learner does not know one network at first.
type learner struct {
	same
	knows atomic.Bool
}

func (l *learner) ToRemote(address netip.Addr) (netip.Addr, error) {
	if !l.knows.Load() && strings.HasPrefix(address.String(), "10.66.") {
		return netip.Addr{}, errors.New("not known yet")
	}
	return l.same.ToRemote(address)
}

// TestPairsLeaveNothing: pairs that come and go leave no goroutine, and nothing that is remembered of them.
func TestPairsLeaveNothing(t *testing.T) {
	b := newBed(t)
	local, twin := b.offload()
	b.run()
	b.must(b.home.Create(t.Context(), configMap(local, "settings", "1")))
	b.until("there", func() bool { return b.exists(b.away, configMap(twin, "settings", "")) })
	leave := func() {
		b.current(func(m *vkv1alpha1.NamespaceMap) { delete(m.Status.CurrentMapping, local) })
		b.until("the pair ends", func() bool { pair, _ := b.engine.pairs.local(local); return pair == nil })
	}
	leave()
	b.quiet()
	before := runtime.NumGoroutine()
	b.there.reset()
	for range 25 {
		b.current(func(m *vkv1alpha1.NamespaceMap) {
			m.Status.CurrentMapping[local] = vkv1alpha1.RemoteNamespaceStatus{RemoteNamespace: twin, Phase: vkv1alpha1.MappingAccepted}
		})
		b.until("the pair is there", func() bool { pair, _ := b.engine.pairs.local(local); return pair != nil })
		leave()
	}
	b.until("as few goroutines as before", func() bool { return runtime.NumGoroutine() <= before+5 })
	for _, r := range b.engine.reflectors {
		r.mu.Lock()
		if len(r.opened) > 0 {
			t.Errorf("%s: %d pairs are remembered", r.kind.name, len(r.opened))
		}
		r.mu.Unlock()
	}
	if got := append(b.here.taken(), b.there.taken()...); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
}
