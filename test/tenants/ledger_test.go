// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
)

// The bounds of one peer over all its namespaces, as the chart sets them (peers.totals, peers.writes).
const (
	mostPorts      = 100
	burst          = 64 << 20
	bytesPerSecond = 1 << 20
)

// many is how many namespaces the hostile consumer has in the provider.
const many = 30

// spread gives the hostile consumer many remote namespaces, until the end of the test.
func spread(t *testing.T) (*attack, []string) {
	t.Helper()
	peered(t)
	a := newAttacker(t)
	var manifest strings.Builder
	for i := range many {
		fmt.Fprintf(&manifest, `---
apiVersion: v1
kind: Namespace
metadata: {name: many-%[1]d, labels: {example.com/test: many}}
---
apiVersion: offloading.liqo.io/v1alpha1
kind: NamespaceOffloading
metadata: {name: offloading, namespace: many-%[1]d, labels: {example.com/test: many}}
spec: {namespaceMappingStrategy: DefaultName, podOffloadingStrategy: Remote}
`, i)
	}
	t.Cleanup(func() {
		hostile.Kubectl(t, "delete", "namespaceoffloadings.offloading.liqo.io", "-A", "-l", "example.com/test=many", "--timeout=240s")
		hostile.Kubectl(t, "delete", "namespaces", "-l", "example.com/test=many", "--timeout=240s")
		env.Eventually(t, env.Hang, "the hostile consumer has no remote namespace", func() (string, bool) {
			left := a.namespaces(t)
			return strings.Join(left, " "), len(left) == 0
		})
	})
	hostile.Apply(t, manifest.String())
	env.Eventually(t, env.Hang, "all namespaces are offloaded", func() (string, bool) {
		phases := strings.Fields(hostile.Kubectl(
			t, "get", "namespaceoffloadings.offloading.liqo.io", "-A", "-l", "example.com/test=many", "-o",
			"jsonpath={.items[*].status.offloadingPhase}",
		))
		ready := 0
		for _, phase := range phases {
			if phase == "Ready" {
				ready++
			}
		}
		return fmt.Sprint(phases), ready == many
	})
	all := a.namespaces(t)
	if len(all) != many {
		t.Fatalf("the hostile consumer has the remote namespaces %v, want %d", all, many)
	}
	env.Eventually(t, env.Hang, "the hostile consumer has its rights in all namespaces", func() (string, bool) {
		for _, name := range all {
			if status, text := a.call(t.Context(), http.MethodGet, "/api/v1/namespaces/"+name+"/services", ""); status != http.StatusOK {
				return fmt.Sprintf("%s: %d %s", name, status, text), false
			}
		}
		return "", true
	})
	return a, all
}

// busy reports whether the provider did not decide: it has too many requests at the same time, or a webhook was late.
func busy(status int) bool {
	return status == 0 || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// TestAttackNH4: a consumer creates a few node ports in each of many namespaces, less than a namespace may have. It gets no more than a peer may have in
// all, and the provider's own Service still gets one.
func TestAttackNH4(t *testing.T) {
	defer clusters.Step(t)()
	const each = 10
	a, all := spread(t)
	ctx := t.Context()
	var next, refused atomic.Int64
	var working sync.WaitGroup
	for range 4 { // fewer than the API server lets peers have at the same time
		working.Go(func() {
			for {
				number := int(next.Add(1)) - 1
				if number >= each*many || ctx.Err() != nil {
					return
				}
				path := "/api/v1/namespaces/" + all[number%many] + "/services"
				body := fmt.Sprintf(
					`{"apiVersion":"v1","kind":"Service","metadata":{"name":"port-%d","labels":%s},"spec":{"type":"NodePort","ports":[{"port":80}]}}`,
					number, a.own(),
				)
				status, text := a.call(ctx, http.MethodPost, path, body)
				for again := 0; again < 50 && busy(status); again++ {
					status, text = a.call(ctx, http.MethodPost, path, body)
				}
				a.count(status)
				switch {
				case status == http.StatusCreated:
				case status == http.StatusForbidden && strings.Contains(text, "node ports of the peer in this cluster"):
					refused.Add(1)
				default:
					t.Errorf("Service %d: %d, want it created, or refused with the bound of node ports\n%s", number, status, text)
				}
			}
		})
	}
	working.Wait()

	ports := 0
	for _, name := range all {
		var services corev1.ServiceList
		if err := provider.API.List(ctx, &services, client.InNamespace(name)); err != nil {
			t.Fatal(err)
		}
		for _, service := range services.Items {
			for _, port := range service.Spec.Ports {
				if port.NodePort != 0 {
					ports++
				}
			}
		}
	}
	clusters.Measure(
		"node ports over many namespaces", "%d tried in %d namespaces: %s; %d held, at most %d may be", each*many, many, a.outcome(), ports,
		mostPorts,
	)
	if ports > mostPorts || refused.Load() == 0 {
		t.Errorf("the hostile consumer holds %d node ports, and %d Services were refused; want at most %d", ports, refused.Load(), mostPorts)
	}
	if ports < mostPorts*9/10 {
		t.Errorf("the hostile consumer got %d node ports, and a peer may have %d: the refusals prove nothing", ports, mostPorts)
	}
	own := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "own-"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := provider.API.Create(ctx, own); err != nil {
		t.Fatalf("the provider's own Service: %v", err)
	}
	t.Cleanup(func() {
		if err := provider.API.Delete(context.Background(), own); err != nil {
			t.Error(err)
		}
	})
	if own.Spec.Ports[0].NodePort == 0 {
		t.Error("the provider's own Service has no node port")
	}
}

// TestAttackNH5: a consumer rewrites a large ConfigMap in each of many namespaces as fast as it can. After a burst it has to wait, etcd grows no faster than
// a peer may write, and the pods of another consumer start meanwhile.
func TestAttackNH5(t *testing.T) {
	defer clusters.Step(t)()
	a, all := spread(t)
	offload(t, good)
	t.Cleanup(func() {
		good.Liqoctl(t, "unoffload", "namespace", namespace)
		good.Kubectl(t, "delete", "namespace", namespace, "--timeout=120s")
	})
	quiet := starts(t, "before-writes", 5)
	lasts := time.Minute
	if *long {
		lasts = 5 * time.Minute
	}
	for _, name := range all {
		if status, text := a.call(t.Context(), http.MethodPost, "/api/v1/namespaces/"+name+"/configmaps", a.large("small")); status != http.StatusCreated {
			t.Fatalf("ConfigMap in %s: %d %s", name, status, text)
		}
	}
	size := stored(t)
	w := a.rewrite(t, all, lasts, workers)
	// The other consumer works while the hostile one has to wait, and keeps trying.
	env.Eventually(t, env.Hang, "the hostile consumer has to wait", func() (string, bool) { return w.text(), w.waits.Load() > 0 })
	then := processors(t)
	during := starts(t, "during-writes", 5)
	share := processors(t).since(then)
	took := w.wait()
	grown := stored(t) - size
	// With one request at a time, the same attack leaves processors free: then the machine is not what the other consumer waits for.
	single := a.rewrite(t, all, 30*time.Second, 1)
	then = processors(t)
	beside := starts(t, "during-single-writes", 5)
	shareBeside := processors(t).since(then)
	single.wait()

	most := int64(burst + bytesPerSecond*took.Seconds())
	clusters.Measure(
		"a peer that rewrites large objects", "%s in %s; accepted %s, at most %s may be; %s before it first had to wait", w.text(),
		took.Round(time.Second), mebi(w.accepted.Load()), mebi(most), mebi(w.burst.Load()),
	)
	clusters.Measure("etcd meanwhile", "grew by %s (%s to %s)", mebi(grown), mebi(size), mebi(size+grown))
	clusters.Measure(
		"pod of another consumer", "Ready after %s, %s before the attack (medians of 5); the processors were %d %% busy", median(during),
		median(quiet), share,
	)
	clusters.Measure(
		"pod of another consumer, with one write at a time", "Ready after %s (median of 5); the processors were %d %% busy; %s", median(beside),
		shareBeside, single.text(),
	)
	if w.accepted.Load() > most {
		t.Errorf("%s were accepted in %s, want at most %s", mebi(w.accepted.Load()), took, mebi(most))
	}
	if w.burst.Load() < burst*3/4 {
		t.Errorf("the peer had to wait after %s; want after a burst of %s", mebi(w.burst.Load()), mebi(burst))
	}
	// The file has pages that are free, and others write as well.
	if bound := most + most/2 + 32<<20; grown > bound {
		t.Errorf("etcd grew by %s, want at most %s", mebi(grown), mebi(bound))
	}
	if w.other.Load() > 0 {
		t.Errorf("%d writes were refused for another reason, such as %v", w.other.Load(), w.reason.Load())
	}
	for _, one := range during {
		if one > outage {
			t.Errorf("a pod of another consumer took %s to start", one)
		}
	}
	env.Healthy(t, provider)
}

// writes is what became of the attempts to rewrite objects.
type writes struct {
	accepted, burst     atomic.Int64 // bytes; burst are those before the peer first had to wait
	good, waits         atomic.Int64 // accepted attempts, and those that were answered with the bytes per second
	busy, other         atomic.Int64 // not decided, because the provider is busy; or refused for any other reason
	reason              atomic.Value
	working             sync.WaitGroup
	began, lastAnswered time.Time
	mu                  sync.Mutex
}

func (w *writes) text() string {
	return fmt.Sprintf("%d writes accepted, %d had to wait, %d not decided, %d others", w.good.Load(), w.waits.Load(), w.busy.Load(), w.other.Load())
}

// wait returns how long it took from the first attempt to the last answer.
func (w *writes) wait() time.Duration {
	w.working.Wait()
	return w.lastAnswered.Sub(w.began)
}

// large is the ConfigMap that is rewritten.
func (a *attack) large(data string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large","labels":%s},"data":{"a":%q}}`, a.own(), data)
}

// rewrite starts to write a ConfigMap of nearly 1 MiB, the largest there is, in each namespace, again and again, with so many requests at the same time.
func (a *attack) rewrite(t *testing.T, all []string, lasts time.Duration, workers int) *writes {
	t.Helper()
	ctx := t.Context()
	w := &writes{began: time.Now()}
	filling := strings.Repeat("x", 1000<<10)
	var next atomic.Int64
	for range workers {
		w.working.Go(func() {
			for time.Since(w.began) < lasts && ctx.Err() == nil {
				number := next.Add(1)
				path := "/api/v1/namespaces/" + all[int(number)%len(all)] + "/configmaps/large"
				body := a.large(strconv.FormatInt(number, 10) + filling)
				status, text := a.call(ctx, http.MethodPut, path, body)
				w.record(status, text, int64(len(body)))
			}
		})
	}
	return w
}

func (w *writes) record(status int, text string, size int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastAnswered = time.Now()
	switch {
	case status == http.StatusOK:
		w.good.Add(1)
		w.accepted.Add(size)
		if w.waits.Load() == 0 {
			w.burst.Add(size)
		}
	case status == http.StatusTooManyRequests && strings.Contains(text, "the peer writes more than"):
		w.waits.Add(1)
	case busy(status):
		w.busy.Add(1)
	default:
		w.other.Add(1)
		w.reason.Store(fmt.Sprint(status, " ", text))
	}
}

// stored is the size of the database behind the provider's API server.
func stored(t *testing.T) int64 {
	t.Helper()
	for line := range strings.Lines(provider.Kubectl(t, "get", "--raw", "/metrics")) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "} "); found && strings.HasPrefix(name, "apiserver_storage_size_bytes{") {
			size, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return int64(size)
		}
	}
	t.Fatal("the API server of the provider has no metric apiserver_storage_size_bytes")
	return 0
}

func mebi(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
