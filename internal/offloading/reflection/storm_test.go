// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/fairqueue"
	"liqo.io/liqo/internal/kube/kubetest"
)

const (
	// storm is the number of objects that fail.
	storm = 150
	// several is the number of good objects that are reflected beside them.
	several = 5
)

// TestStorm: a namespace in which the peer refuses everything neither delays another namespace nor silences its events, and its retries become ever rarer.
func TestStorm(t *testing.T) {
	e := newEnv(t)
	bad, badRemote := e.offload()
	good, goodRemote := e.offload()
	e.none(badRemote, "configmaps")
	e.must(e.provider.Create(t.Context(), configMap(goodRemote, "unmanaged", "theirs")))
	e.run()
	for i := range storm {
		e.must(e.consumer.Create(t.Context(), configMap(bad, fmt.Sprint("c", i), "x")))
	}
	q := e.reflection.objects.Kind("ConfigMap").Queue
	e.until("all of them fail", func() bool { return failed(q, bad) == storm && len(e.toProvider.writesTo(badRemote)) > storm })
	e.bounded(q, bad, badRemote)
	e.until("an event in the namespace of the storm", func() bool { return e.event(bad, "c0", "FailedReflection", "exceeded quota") })
	e.must(e.consumer.Create(t.Context(), configMap(good, "unmanaged", "ours")))
	e.until("an event in the other namespace", func() bool { return e.event(good, "unmanaged", "FailedReflection", "not managed") })
	for i := range several {
		e.overtakes(q, bad, badRemote, configMap(good, fmt.Sprint("beside", i), "x"), goodRemote)
	}
}

// TestStormOfPods: the same for pods, in both directions.
func TestStormOfPods(t *testing.T) {
	e := newEnv(t)
	bad, badRemote := e.offload()
	good, goodRemote := e.offload()
	e.none(badRemote, "shadowpods.virtualkubelet.liqo.io")
	e.runProvider(goodRemote)
	e.run()
	for i := range storm {
		e.must(e.consumer.Create(t.Context(), e.pod(bad, fmt.Sprint("p", i))))
	}
	q := e.reflection.pods.Outbound
	e.until("all of them fail", func() bool {
		return failed(q, bad) == storm && len(e.toProvider.writesTo(badRemote, "shadowpods")) > storm
	})
	e.bounded(q, bad, badRemote)
	e.until("an event in the namespace of the storm", func() bool { return e.event(bad, "p0", "FailedReflection", "exceeded quota") })
	for i := range several {
		pod := e.pod(good, fmt.Sprint("beside", i))
		e.overtakes(q, bad, badRemote, pod, goodRemote)
		e.untilPod(good, pod.Name, "Ready", isReady)
	}
	for _, pod := range []string{"p0", fmt.Sprint("p", storm-1)} { // pods that the provider never had can be deleted
		e.must(e.consumer.Delete(t.Context(), e.pod(bad, pod)))
		e.until(pod+" is gone", func() bool { return !e.exists(e.consumer, e.pod(bad, pod)) })
	}
}

// TestNamespaceHangs: objects are reflected while the peer leaves all requests of another namespace unanswered.
func TestNamespaceHangs(t *testing.T) {
	e := newEnv(t)
	bad, badRemote := e.offload()
	good, goodRemote := e.offload()
	e.runProvider(goodRemote)
	hanging := kubetest.Hang(t, e.provider, badRemote,
		admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		admissionregistrationv1.Rule{APIGroups: []string{vkv1alpha1.GroupVersion.Group}, APIVersions: []string{"v1alpha1"}, Resources: []string{"shadowpods"}})
	e.run()
	for i := range 30 {
		e.must(e.consumer.Create(t.Context(), configMap(bad, fmt.Sprint("c", i), "x")))
		e.must(e.consumer.Create(t.Context(), e.pod(bad, fmt.Sprint("p", i))))
	}
	e.until("the namespace has all workers that it may have", func() bool {
		return hanging() >= e.reflection.objects.Kind("ConfigMap").Queue.Share()+e.reflection.pods.Outbound.Share()
	})
	for i := range several {
		config, pod := configMap(good, fmt.Sprint("beside", i), "x"), e.pod(good, fmt.Sprint("beside", i))
		e.must(e.consumer.Create(t.Context(), config))
		e.must(e.consumer.Create(t.Context(), pod))
		e.until(config.Name+" is reflected", func() bool { return e.exists(e.provider, configMap(goodRemote, config.Name, "")) })
		e.untilPod(good, pod.Name, "Ready", isReady)
	}
}

// overtakes makes all failing objects of the bad namespace ready, then creates an object in another one, and checks that its write does not wait for all of
// theirs.
func (e *env) overtakes(q *fairqueue.Queue, bad, badRemote string, object client.Object, remoteNS string) {
	e.t.Helper()
	q.Pause()
	q.Retry(bad)
	e.must(e.consumer.Create(e.t.Context(), object))
	e.until(object.GetName()+" is ready to be reflected", func() bool {
		return q.States()[client.ObjectKeyFromObject(object)].Ready
	})
	e.toProvider.reset()
	q.Resume()
	written := func(one string) bool {
		return strings.Contains(one, remoteNS) && strings.HasSuffix(one, "/"+object.GetName())
	}
	e.until(object.GetName()+" is written", func() bool { return slices.ContainsFunc(e.toProvider.writesTo(), written) })
	writes := e.toProvider.writesTo()
	before := slices.DeleteFunc(writes[:slices.IndexFunc(writes, written)], func(one string) bool { return !strings.Contains(one, badRemote) })
	e.t.Logf("%s: after %d of %d writes of the storm", object.GetName(), len(before), storm)
	if len(before) > storm/2 {
		e.t.Errorf("%s was written after %d writes of the other namespace, want a few", object.GetName(), len(before))
	}
}

// bounded checks that each try of a failing object was counted as a failure, and so waited for its backoff, which doubles (TestQueueWaits). One more is
// allowed for an event.
func (e *env) bounded(q *fairqueue.Queue, namespace, remoteNS string) {
	e.t.Helper()
	tries := map[string]int{}
	for _, write := range e.toProvider.writesTo(remoteNS) {
		tries[path.Base(write)]++
	}
	states := q.States()
	for name, count := range tries {
		if s := states[key(namespace, name)]; count > s.Failures+1 {
			e.t.Errorf("%s: written %d times, state %+v", name, count, s)
		}
	}
}

// failed returns how many keys of a namespace have failed.
func failed(q *fairqueue.Queue, namespace string) (n int) {
	for key, s := range q.States() {
		if key.Namespace == namespace && s.Failures > 0 {
			n++
		}
	}
	return n
}

// none makes the provider refuse all objects of a kind in a namespace, with a quota.
func (e *env) none(namespace, resource string) {
	e.t.Helper()
	nothing := corev1.ResourceList{corev1.ResourceName("count/" + resource): {}}
	quota := &corev1.ResourceQuota{ObjectMeta: named(namespace, "none"), Spec: corev1.ResourceQuotaSpec{Hard: nothing}}
	e.must(e.provider.Create(e.t.Context(), quota))
	quota.Status = corev1.ResourceQuotaStatus{Hard: nothing, Used: nothing} // the controller that sets it does not run here
	e.must(e.provider.Status().Update(e.t.Context(), quota))
}
