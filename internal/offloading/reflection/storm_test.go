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
	e := newEnv(t)
	bad, badRemote := e.offload()
	good, goodRemote := e.offload()
	e.none(badRemote, "configmaps")
	e.must(e.provider.Create(t.Context(), configMap(goodRemote, "stranger", "theirs")))
	e.run()
	usual := e.usual(e.configMaps(good, goodRemote, "alone"))
	began := time.Now()
	for i := range storm {
		e.must(e.consumer.Create(t.Context(), configMap(bad, fmt.Sprint("c", i), "x")))
	}
	e.until("they fail", func() bool { return len(e.toProvider.matching(badRemote)) > storm })
	e.within(usual, "ConfigMaps", e.configMaps(good, goodRemote, "beside"))
	e.until("the users of the storm are told", func() bool { return e.event(bad, "c0", "FailedReflection", "exceeded quota") })
	e.must(e.consumer.Create(t.Context(), configMap(good, "stranger", "ours")))
	e.until("the user of the other namespace is told", func() bool { return e.event(good, "stranger", "FailedReflection", "not managed") })
	e.bounded(badRemote, began)
}

// TestStormOfPods: the same for pods, in both directions.
func TestStormOfPods(t *testing.T) {
	e := newEnv(t)
	bad, badRemote := e.offload()
	good, goodRemote := e.offload()
	e.none(badRemote, "shadowpods.virtualkubelet.liqo.io")
	e.runProvider(goodRemote)
	e.run()
	usual := e.usual(e.pods(good, "alone"))
	began := time.Now()
	for i := range storm {
		e.must(e.consumer.Create(t.Context(), e.pod(bad, fmt.Sprint("p", i))))
	}
	e.until("they fail", func() bool { return len(e.toProvider.matching(badRemote, "shadowpods")) > storm })
	e.within(usual, "pods", e.pods(good, "beside"))
	e.until("the users of the storm are told", func() bool { return e.event(bad, "p0", "FailedReflection", "exceeded quota") })
	e.bounded(badRemote, began)
	for _, pod := range []string{"p0", fmt.Sprint("p", storm-1)} { // they go although they never came
		e.must(e.consumer.Delete(t.Context(), e.pod(bad, pod)))
		e.until(pod+" is gone", func() bool { return !e.exists(e.consumer, e.pod(bad, pod)) })
	}
}

// TestNamespaceHangs: a namespace in which the peer takes very long for everything does not delay another one.
func TestNamespaceHangs(t *testing.T) {
	e := newEnv(t)
	bad, badRemote := e.offload()
	good, goodRemote := e.offload()
	e.runProvider(goodRemote)
	asked := kubetest.Hang(t, e.provider, badRemote,
		admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		admissionregistrationv1.Rule{APIGroups: []string{vkv1alpha1.GroupVersion.Group}, APIVersions: []string{"v1alpha1"}, Resources: []string{"shadowpods"}})
	e.run()
	usual := e.usual(e.pods(good, "alone"))
	for i := range 30 {
		e.must(e.consumer.Create(t.Context(), configMap(bad, fmt.Sprint("c", i), "x")))
		e.must(e.consumer.Create(t.Context(), e.pod(bad, fmt.Sprint("p", i))))
	}
	e.until("as many requests hang as may", func() bool {
		return asked() >= e.engine.reflector("ConfigMap").queue.share+e.engine.pods.outbound.share
	})
	e.within(usual, "ConfigMaps", e.configMaps(good, goodRemote, "beside"))
	e.within(usual, "pods", e.pods(good, "beside"))
}

// configMaps returns how long each of several took to its copy, one after the other, the median in the middle.
func (e *env) configMaps(local, remoteNS, prefix string) []time.Duration {
	e.t.Helper()
	return kubetest.Times(several, func(i int) {
		name := fmt.Sprint(prefix, i)
		e.must(e.consumer.Create(e.t.Context(), configMap(local, name, "x")))
		e.until(name+" is there", func() bool { return e.exists(e.provider, configMap(remoteNS, name, "")) })
	})
}

// pods returns the same for pods, until they are Ready here.
func (e *env) pods(local, prefix string) []time.Duration {
	e.t.Helper()
	return kubetest.Times(several, func(i int) {
		name := fmt.Sprint(prefix, i)
		e.must(e.consumer.Create(e.t.Context(), e.pod(local, name)))
		e.untilPod(local, name, "Ready", isReady)
	})
}

// usual is the bound, by how long it took without a storm on the machine as it is.
func (e *env) usual(alone []time.Duration) time.Duration {
	return max(time.Second, 10*alone[several/2])
}

func (e *env) within(usual time.Duration, what string, beside []time.Duration) {
	e.t.Helper()
	e.t.Logf("%s beside the storm: median %v, slowest %v", what, beside[several/2].Round(time.Millisecond), beside[several-1].Round(time.Millisecond))
	if beside[several/2] > usual {
		e.t.Errorf("%s took %v beside the storm, want %v at most", what, beside, usual)
	}
}

// bounded: no object was tried more often than a wait that doubles allows, and one time more for news.
func (e *env) bounded(remoteNS string, since time.Time) {
	e.t.Helper()
	writes := e.toProvider.matching(remoteNS)
	most := 3 + int(math.Log2(float64(time.Since(since))/float64(firstBackoff)+1))
	tried := map[string]int{}
	for _, write := range writes {
		tried[write]++
	}
	e.t.Logf("%d requests for %d objects in %v", len(writes), len(tried), time.Since(since).Round(time.Millisecond))
	for what, times := range tried {
		if times > most {
			e.t.Errorf("%s: %d times in %v, want %d at most", what, times, time.Since(since), most)
		}
	}
}

// none lets the peer refuse all objects of a kind in a namespace.
func (e *env) none(namespace, resource string) {
	e.t.Helper()
	nothing := corev1.ResourceList{corev1.ResourceName("count/" + resource): {}}
	quota := &corev1.ResourceQuota{ObjectMeta: named(namespace, "none"), Spec: corev1.ResourceQuotaSpec{Hard: nothing}}
	e.must(e.provider.Create(e.t.Context(), quota))
	quota.Status = corev1.ResourceQuotaStatus{Hard: nothing, Used: nothing} // as its controller, which does not run here
	e.must(e.provider.Status().Update(e.t.Context(), quota))
}
