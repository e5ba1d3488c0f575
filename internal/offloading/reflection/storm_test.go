// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"math"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
)

const (
	// storm is how many objects fail.
	storm = 150
	// several is how many objects cross beside it. Their median counts: the machine of a test may stand still now and then.
	several = 9
)

// TestStorm: a namespace in which the peer refuses everything does not delay another one, nor silence it, and costs ever fewer requests.
func TestStorm(t *testing.T) {
	b := newBed(t)
	bad, badTwin := b.offload()
	good, goodTwin := b.offload()
	b.none(badTwin, "configmaps")
	b.must(b.away.Create(t.Context(), configMap(goodTwin, "stranger", "theirs")))
	b.run()
	usual := b.usual(b.configMaps(good, goodTwin, "alone"))
	began := time.Now()
	for i := range storm {
		b.must(b.home.Create(t.Context(), configMap(bad, fmt.Sprint("c", i), "x")))
	}
	b.until("they fail", func() bool { return len(b.there.taken(badTwin)) > storm })
	b.within(usual, "ConfigMaps", b.configMaps(good, goodTwin, "beside"))
	b.until("the users of the storm are told", func() bool { return b.event(bad, "c0", "FailedReflection", "exceeded quota") })
	b.must(b.home.Create(t.Context(), configMap(good, "stranger", "ours")))
	b.until("the user of the other namespace is told", func() bool { return b.event(good, "stranger", "FailedReflection", "not managed") })
	b.bounded(badTwin, began)
}

// TestStormOfPods: the same for pods, in both directions.
func TestStormOfPods(t *testing.T) {
	b := newBed(t)
	bad, badTwin := b.offload()
	good, goodTwin := b.offload()
	b.none(badTwin, "shadowpods.virtualkubelet.liqo.io")
	b.play(goodTwin)
	b.run()
	usual := b.usual(b.pods(good, "alone"))
	began := time.Now()
	for i := range storm {
		b.must(b.home.Create(t.Context(), b.pod(bad, fmt.Sprint("p", i))))
	}
	b.until("they fail", func() bool { return len(b.there.taken(badTwin, "shadowpods")) > storm })
	b.within(usual, "pods", b.pods(good, "beside"))
	b.until("the users of the storm are told", func() bool { return b.event(bad, "p0", "FailedReflection", "exceeded quota") })
	b.bounded(badTwin, began)
	for _, pod := range []string{"p0", fmt.Sprint("p", storm-1)} { // they go although they never came
		b.must(b.home.Delete(t.Context(), b.pod(bad, pod)))
		b.until(pod+" is gone", func() bool { return !b.exists(b.home, b.pod(bad, pod)) })
	}
}

// TestNamespaceHangs: a namespace in which the peer takes very long for everything does not delay another one.
func TestNamespaceHangs(t *testing.T) {
	b := newBed(t)
	bad, badTwin := b.offload()
	good, goodTwin := b.offload()
	b.play(goodTwin)
	asked := kubetest.Hang(t, b.away, badTwin,
		admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		admissionregistrationv1.Rule{APIGroups: []string{vkv1alpha1.GroupVersion.Group}, APIVersions: []string{"v1alpha1"}, Resources: []string{"shadowpods"}})
	b.run()
	usual := b.usual(b.pods(good, "alone"))
	for i := range 30 {
		b.must(b.home.Create(t.Context(), configMap(bad, fmt.Sprint("c", i), "x")))
		b.must(b.home.Create(t.Context(), b.pod(bad, fmt.Sprint("p", i))))
	}
	b.until("as many requests hang as may", func() bool { return asked() >= b.engine.reflector("ConfigMap").queue.share+b.engine.pods.forth.share })
	b.within(usual, "ConfigMaps", b.configMaps(good, goodTwin, "beside"))
	b.within(usual, "pods", b.pods(good, "beside"))
}

// configMaps returns how long each of several took to its copy, one after the other, the median in the middle.
func (b *bed) configMaps(local, twin, prefix string) []time.Duration {
	b.t.Helper()
	return kubetest.Times(several, func(i int) {
		name := fmt.Sprint(prefix, i)
		b.must(b.home.Create(b.t.Context(), configMap(local, name, "x")))
		b.until(name+" is there", func() bool { return b.exists(b.away, configMap(twin, name, "")) })
	})
}

// pods returns the same for pods, until they are Ready here.
func (b *bed) pods(local, prefix string) []time.Duration {
	b.t.Helper()
	return kubetest.Times(several, func(i int) {
		name := fmt.Sprint(prefix, i)
		b.must(b.home.Create(b.t.Context(), b.pod(local, name)))
		b.untilPod(local, name, "Ready", isReady)
	})
}

// usual is the bound, by how long it took without a storm on the machine as it is.
func (b *bed) usual(alone []time.Duration) time.Duration {
	return max(time.Second, 10*alone[several/2])
}

func (b *bed) within(usual time.Duration, what string, beside []time.Duration) {
	b.t.Helper()
	b.t.Logf("%s beside the storm: median %v, slowest %v", what, beside[several/2].Round(time.Millisecond), beside[several-1].Round(time.Millisecond))
	if beside[several/2] > usual {
		b.t.Errorf("%s took %v beside the storm, want %v at most", what, beside, usual)
	}
}

// bounded: no object was tried more often than a wait that doubles allows, and one time more for news.
func (b *bed) bounded(twin string, since time.Time) {
	b.t.Helper()
	writes := b.there.taken(twin)
	most := 3 + int(math.Log2(float64(time.Since(since))/float64(firstBackoff)+1))
	tried := map[string]int{}
	for _, write := range writes {
		tried[write]++
	}
	b.t.Logf("%d requests for %d objects in %v", len(writes), len(tried), time.Since(since).Round(time.Millisecond))
	for what, times := range tried {
		if times > most {
			b.t.Errorf("%s: %d times in %v, want %d at most", what, times, time.Since(since), most)
		}
	}
}

// none lets the peer refuse all objects of a kind in a namespace.
func (b *bed) none(namespace, resource string) {
	b.t.Helper()
	nothing := corev1.ResourceList{corev1.ResourceName("count/" + resource): {}}
	quota := &corev1.ResourceQuota{ObjectMeta: named(namespace, "none"), Spec: corev1.ResourceQuotaSpec{Hard: nothing}}
	b.must(b.away.Create(b.t.Context(), quota))
	quota.Status = corev1.ResourceQuotaStatus{Hard: nothing, Used: nothing} // as its controller, which does not run here
	b.must(b.away.Status().Update(b.t.Context(), quota))
}
