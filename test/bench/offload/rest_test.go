// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/audit"
)

// idlePeriod is a measurement without any change of the workload.
type idlePeriod struct {
	Seconds            float64
	Consumer, Provider writes
	Bytes              transferred
	CPU                cpu
	Memory             memory
}

// idle counts writes, bytes and processor time while the workload does not change.
func (b *bench) idle(t *testing.T) {
	idleFor(settle)
	cpuBefore, bytesBefore, from := used(t), b.counters.bytes(t), time.Now()
	idleFor(*idle)
	to := time.Now()
	b.results.Idle = &idlePeriod{
		Seconds: to.Sub(from).Seconds(), Bytes: b.counters.bytes(t).since(bytesBefore), CPU: used(t).since(cpuBefore), Memory: memoryNow(t),
		Consumer: countWrites(t, b.consumer, from, to, nil), Provider: countWrites(t, b.provider, from, to, nil),
	}
	r := b.results.Idle
	t.Logf(
		"idle for %.0f s: consumer %v and %d reviews, provider %v and %d reviews, bytes %.0f and %.0f back, CPU %.2f s\n%v", r.Seconds,
		r.Consumer.ByCall, r.Consumer.Reviews, r.Provider.ByCall, r.Provider.Reviews, r.Bytes.To, r.Bytes.Back, r.CPU.Liqo, r.Memory,
	)
}

// restarted is the measurement of a virtual kubelet that restarts while no object changes.
type restarted struct {
	Objects            int
	Caught             float64 // seconds from the kill until a new object was seen at the provider
	Consumer, Provider writes  // all of them
	OfObjects          writes  // those of reflected objects
	CPU                cpu
}

// reflectedKinds are the resources whose objects a restart must not write.
var reflectedKinds = []string{
	"pods", "shadowpods", "configmaps", "secrets", "services", "endpointslices", "shadowendpointslices", "ingresses", "events",
	"serviceaccounts",
}

const canary = "canary"

// restart kills the virtual kubelet with pods and ConfigMaps that do not change, and counts the writes of the next one.
func (b *bench) restart(t *testing.T) {
	half := *many / 2
	ctx := t.Context()
	configMaps := func(do func(*corev1.ConfigMap) error) {
		t.Helper()
		for i := range half {
			if err := do(&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: offloaded, Name: fmt.Sprintf("unchanged-%d", i)}, Data: map[string]string{"k": "v"},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	configMaps(func(cm *corev1.ConfigMap) error { return b.consumer.API.Create(ctx, cm) })
	arrived := func() (string, bool) {
		var remote corev1.ConfigMapList
		err := b.provider.API.List(ctx, &remote, client.InNamespace(offloaded))
		n := 0
		for _, cm := range remote.Items {
			if strings.HasPrefix(cm.Name, "unchanged-") {
				n++
			}
		}
		return fmt.Sprint(n, " ConfigMaps, ", err), n == half
	}
	env.Eventually(t, time.Minute, "the ConfigMaps are at the provider", arrived)
	b.run(t, burst{Pods: *many - half, Offloaded: true}, func(t *testing.T) { b.killed(t, *many) })
	configMaps(func(cm *corev1.ConfigMap) error { return b.consumer.API.Delete(ctx, cm) })
	env.Eventually(t, time.Minute, "the ConfigMaps are gone at the provider", func() (string, bool) {
		var remote corev1.ConfigMapList
		err := b.provider.API.List(ctx, &remote, client.InNamespace(offloaded))
		return fmt.Sprint(len(remote.Items), " ConfigMaps, ", err), err == nil &&
			!slices.ContainsFunc(remote.Items, func(cm corev1.ConfigMap) bool { return strings.HasPrefix(cm.Name, "unchanged-") })
	})
}

func kubelet(t *testing.T) (number int) {
	t.Helper()
	for _, p := range all(t) {
		if p.Liqo && p.Role == "virtual-kubelet" {
			return p.Number
		}
	}
	return 0
}

func (b *bench) killed(t *testing.T, objects int) {
	t.Helper()
	was := kubelet(t)
	if was == 0 {
		t.Fatal("no virtual kubelet runs")
	}
	idleFor(settle)
	cpuBefore, from := used(t), time.Now()
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		t.Fatalf("kill virtual kubelet %d: %v", was, err)
	}
	env.Eventually(t, time.Minute, "a virtual kubelet runs again", func() (string, bool) {
		now := kubelet(t)
		return fmt.Sprint("process ", now), now != 0 && now != was
	})
	// The reflection of a new object proves that the next virtual kubelet works. Its writes to other objects have four times settle to follow.
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: offloaded, Name: canary}}
	if err := b.consumer.API.Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, time.Minute, "a new object is seen at the provider", func() (string, bool) {
		err := b.provider.API.Get(t.Context(), client.ObjectKeyFromObject(cm), &corev1.ConfigMap{})
		return fmt.Sprint(err), err == nil
	})
	caught := time.Since(from)
	idleFor(4 * settle)
	to := time.Now()
	others := func(c audit.Call) bool {
		return c.ObjectRef.Namespace != offloaded || c.ObjectRef.Name == canary || !slices.Contains(reflectedKinds, c.ObjectRef.Resource)
	}
	r := &restarted{
		Objects: objects, Caught: caught.Seconds(), CPU: used(t).since(cpuBefore),
		Consumer: countWrites(t, b.consumer, from, to, nil), Provider: countWrites(t, b.provider, from, to, nil),
		OfObjects: countWrites(t, b.consumer, from, to, others).plus(countWrites(t, b.provider, from, to, others)),
	}
	b.results.Restart = r
	t.Logf("restart of the virtual kubelet with %d objects: works after %.1f s; writes of them %d %v; all: consumer %v, provider %v; CPU %.2f s",
		objects, r.Caught, r.OfObjects.Total, r.OfObjects.ByCall, r.Consumer.ByCall, r.Provider.ByCall, r.CPU.Liqo)
	if err := b.consumer.API.Delete(t.Context(), cm); err != nil {
		t.Error(err)
	}
}
