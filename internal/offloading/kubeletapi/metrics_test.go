// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/offloading/pages"
)

// fakeProvider serves the text that a test sets.
type fakeProvider struct {
	connection *remote.Connection
	text       atomic.Value
	code       atomic.Int32
	refused    atomic.Int32
	asked      atomic.Value
}

func (s *fakeProvider) Connection(context.Context) (*remote.Connection, error) {
	return s.connection, nil
}
func (s *fakeProvider) Refused() { s.refused.Add(1) }

func newFakeProvider(t testing.TB) (*fakeProvider, *Kubelet, *mappings) {
	t.Helper()
	s := &fakeProvider{}
	s.code.Store(http.StatusOK)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Store(r.URL.Path)
		if code := int(s.code.Load()); code != http.StatusOK {
			w.Header().Set("Location", "https://192.0.2.1/")
			w.WriteHeader(code)
			return
		}
		if r.Header.Get("Accept-Encoding") == "gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			defer packed.Close()
			fmt.Fprint(packed, s.text.Load())
			return
		}
		fmt.Fprint(w, s.text.Load())
	}))
	t.Cleanup(server.Close)
	var err error
	s.connection, err = remote.NewConnection(remote.Identity{
		Namespace: peerNamespace, APIServerURL: server.URL, Token: "t", RenewAt: time.Now(), ExpiresAt: time.Now(),
		APIServerCA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}, runtime.NewScheme())
	if err != nil {
		t.Fatal(err)
	}
	p := &mappings{
		of:      map[string]string{"shop": "shop-rome"},
		podRefs: []PodRef{{"shop", "web", "uid-web"}, {"shop", "api", "uid-api"}, {"not-offloaded", "x", "uid-x"}},
	}
	return s, New(Options{NodeName: kubeletNode, ConsumerID: "rome-id", RemoteName: "milan", Mappings: p, Pods: p, Provider: s}), p
}

func answered(handler http.HandlerFunc) (int, []string) {
	recorder := httptest.NewRecorder()
	handler(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
	return recorder.Code, strings.Split(strings.TrimSpace(recorder.Body.String()), "\n")
}

const resourceText = `# HELP container_cpu_usage_seconds_total [STABLE] x
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="shop-rome",pod="web"} %[1]v 1700000000123
container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} 1 1700000000123
container_cpu_usage_seconds_total{container="app",namespace="kube-system",pod="etcd"} 1 1700000000123
container_cpu_usage_seconds_total{container="app",namespace="shop-rome",pod="ours"} 1 1700000000123
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="shop-rome",pod="web"} %[1]v 1700000000123
pod_cpu_usage_seconds_total{namespace="shop-rome",pod="api"} %[2]v 1700000000456
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="shop-rome",pod="web"} 100 1700000000123
pod_memory_working_set_bytes{namespace="shop-rome",pod="api"} 11 1700000000456
node_cpu_usage_seconds_total 1e9
`

// TestMetrics: only samples of pods of the node are passed on, under their local names; the node is the sum, which never decreases.
func TestMetrics(t *testing.T) {
	s, k, p := newFakeProvider(t)
	ask := func(web, api any) []string {
		t.Helper()
		s.text.Store(fmt.Sprintf(resourceText, web, api))
		code, lines := answered(k.metrics("resource"))
		if code != http.StatusOK {
			t.Fatalf("%d %v", code, lines)
		}
		return lines
	}
	lines := ask("1.5", "2")
	if got := s.asked.Load(); got != "/apis/metrics.liqo.io/v1alpha1/namespaces/"+peerNamespace+"/scrape/rome-id/metrics/resource" {
		t.Errorf("asked %v", got)
	}
	want := []string{
		"# HELP container_cpu_usage_seconds_total [STABLE] x", "# TYPE container_cpu_usage_seconds_total counter",
		`container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} 1.5 1700000000123`,
		"# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds", "# TYPE node_cpu_usage_seconds_total counter",
		"node_cpu_usage_seconds_total 3.5 1700000000456",
		"# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes", "# TYPE node_memory_working_set_bytes gauge",
		"node_memory_working_set_bytes 111 1700000000456",
		"# TYPE pod_cpu_usage_seconds_total counter",
		`pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 1.5 1700000000123`, `pod_cpu_usage_seconds_total{namespace="shop",pod="api"} 2 1700000000456`,
		"# TYPE pod_memory_working_set_bytes gauge",
		`pod_memory_working_set_bytes{namespace="shop",pod="web"} 100 1700000000123`, `pod_memory_working_set_bytes{namespace="shop",pod="api"} 11 1700000000456`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	node := func(lines []string) string {
		for _, line := range lines {
			if text, ok := strings.CutPrefix(line, "node_cpu_usage_seconds_total "); ok {
				value, _, _ := strings.Cut(text, " ")
				return value
			}
		}
		return ""
	}
	for _, c := range []struct {
		web, api any
		want     string
	}{
		{"1.5", "2", "3.5"},   // asked twice
		{"2.5", "2", "4.5"},   // one works
		{"2.5", "0.5", "5"},   // one was created again at the provider
		{"NaN", "0.5", "5"},   // one is not a number
		{"-1", "+Inf", "5"},   // both are invalid
		{"1e300", "0.5", "5"}, // an impossible value
	} {
		if got := node(ask(c.web, c.api)); got != c.want {
			t.Errorf("after %v and %v: %s, want %s", c.web, c.api, got, c.want)
		}
	}
	asked := s.asked.Swap("")
	p.podRefs = p.podRefs[:0]
	if got := node(ask("3", "1")); got != "5" || s.asked.Load() != "" {
		t.Errorf("without pods: %s, asked %v", got, s.asked.Load())
	}
	p.podRefs = append(p.podRefs, PodRef{"shop", "web", "uid-web"})
	s.asked.Store(asked)
	if got := node(ask("3.5", "0.5")); got != "8.5" {
		t.Errorf("a pod that comes back is not counted as a new one: %s", got)
	}
	// The UID is that of the local pod.
	s.text.Store(`prober_probe_total{namespace="shop-rome",pod="web",pod_uid="over-there"} 3` + "\n")
	if _, lines := answered(k.metrics("probes")); !slices.Equal(lines, []string{`prober_probe_total{namespace="shop",pod="web",pod_uid="uid-web"} 3`}) {
		t.Errorf("%v", lines)
	}
}

// TestHostileMetrics: whatever the provider sends instead of metrics, the answer is an error that names the cause.
func TestHostileMetrics(t *testing.T) {
	s, k, _ := newFakeProvider(t)
	k.maxMetrics = 1 << 20 // a process with the race detector takes longer than answerTime to read 64 MiB
	for name, c := range map[string]struct {
		code int
		text string
		want string
	}{
		"a page of HTML":  {200, "<html>", "metrics of cluster milan cannot be read"},
		"a bomb":          {200, strings.Repeat("a{b=\""+strings.Repeat("x", 1000)+"\"} 1\n", 3<<10), "too many metrics"},
		"no agent":        {404, "", "cluster milan does not serve /apis/metrics.liqo.io/"},
		"a redirect":      {302, "", "cluster milan sent the unexpected answer 302"},
		"a token too old": {401, "", "cluster milan does not accept the token"},
		"no right":        {403, "", "cluster milan does not allow it"},
	} {
		s.code.Store(int32(c.code))
		s.text.Store(c.text)
		if code, lines := answered(k.metrics("resource")); code < 500 || !strings.Contains(lines[0], c.want) {
			t.Errorf("%s: %d %.300v", name, code, lines)
		}
	}
	if s.refused.Load() != 1 {
		t.Errorf("Refused was called %d times", s.refused.Load())
	}
}

// TestSummary: the statistics are those of metrics.k8s.io in the remote cluster.
func TestSummary(t *testing.T) {
	s, k, _ := newFakeProvider(t)
	s.text.Store(`{"items":[
		{"metadata":{"name":"web","namespace":"shop-rome"},"timestamp":"2026-01-02T03:04:05Z","containers":[
			{"name":"app","usage":{"cpu":"1500n","memory":"2Ki"}},{"name":"side","usage":{"cpu":"-1","memory":"1Ki"}}]},
		{"metadata":{"name":"unknown","namespace":"shop-rome"},"containers":[{"name":"app","usage":{"cpu":"1","memory":"1Gi"}}]}]}`)
	at := func(minute int) metav1.Time { return metav1.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC) }
	k.options.Node = func(context.Context) pages.Node { return pages.Node{Since: at(0)} }
	k.options.EachPod = func(do func(*corev1.Pod)) {
		start := at(1)
		do(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"}, Status: corev1.PodStatus{
			StartTime: &start,
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(2)}}}, {Name: "side"},
			},
		}})
	}
	code, lines := answered(k.summary)
	if got := s.asked.Load(); got != "/apis/metrics.k8s.io/v1beta1/namespaces/shop-rome/pods" {
		t.Errorf("asked %v", got)
	}
	for _, want := range []string{
		`"nodeName":"liqo-milan","startTime":"2026-01-02T03:00:00Z"`, `"uid":"uid-web"},"startTime":"2026-01-02T03:01:00Z"`, `"name":"side","startTime":null`,
		`"podRef":{"name":"web","namespace":"shop","uid":"uid-web"}`, `{"name":"app","startTime":"2026-01-02T03:02:00Z",` +
			`"cpu":{"time":"2026-01-02T03:04:05Z","usageNanoCores":1500},"memory":{"time":"2026-01-02T03:04:05Z","workingSetBytes":2048}}`,
		`"nodeName":"liqo-milan"`, `"workingSetBytes":3072`,
	} {
		if code != http.StatusOK || !strings.Contains(lines[0], want) {
			t.Errorf("%d %s, want %s", code, lines[0], want)
		}
	}
	if strings.Contains(lines[0], "unknown") {
		t.Error("a pod of another origin is among them")
	}

	// With more digits, the provider would keep this process busy for hours.
	s.text.Store(`{"items":[{"metadata":{"name":"web"},"containers":[{"name":"app","usage":{"cpu":"1e-300000"}}]}]}`)
	if code, lines = answered(k.summary); code == http.StatusOK || !strings.Contains(lines[0], "is not an amount") {
		t.Errorf("an amount that takes long to parse: %d %s", code, lines[0])
	}
}
