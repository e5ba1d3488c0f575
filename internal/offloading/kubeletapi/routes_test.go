// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/internal/offloading/pages"
)

// asked serves one request without its caller, by the routes of the port.
func asked(k *Kubelet, method, path string) *httptest.ResponseRecorder {
	mux := k.handler(func(_ route, next http.Handler) http.Handler { return next })
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	return recorder
}

func newPages(t *testing.T) *Kubelet {
	t.Helper()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"},
		Spec: corev1.PodSpec{
			NodeName: kubeletNode, Containers: []corev1.Container{{Name: "app"}}, InitContainers: []corev1.Container{{Name: "init"}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: running}}},
	}
	return New(Options{
		NodeName: kubeletNode, RemoteName: "milan", EachPod: func(do func(*corev1.Pod)) { do(pod) },
		Node: func(context.Context) pages.Node { return pages.Node{Version: "v1.37.2", Port: 10250, Pods: 5} },
		Process: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "go_goroutines 7\n")
		}),
	})
}

// TestPages: the usual readers of kubelets find what they look for, and what a virtual node cannot do is refused as a kubelet refuses it.
func TestPages(t *testing.T) {
	k := newPages(t)
	for _, c := range []struct {
		method, path string
		code         int
		contains     string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/healthz?verbose", 200, "[+]syncloop ok"},
		{"GET", "/healthz/ping", 200, "ok"},
		{"GET", "/healthz/syncloop", 200, "ok"},
		{"GET", "/healthz/other", 404, ""},
		{"GET", "/metrics", 200, `kubelet_node_name{node="liqo-milan"} 1`},
		{"GET", "/metrics", 200, "go_goroutines 7"},
		{"GET", "/metrics/", 200, `kubernetes_build_info{git_version="v1.37.2",major="1",minor="37"} 1`},
		{"GET", "/metrics/slis", 200, `kubernetes_healthcheck{name="syncloop",type="healthz"} 1`},
		{"GET", "/pods", 200, `"uid":"uid-web"`},
		{"GET", "/runningpods/", 200, `"name":"app"`},
		{"GET", "/configz", 200, `"maxPods":5`},
		{"POST", "/pods", 405, "Method Not Allowed"},
		{"DELETE", "/metrics", 405, "Method Not Allowed"},
		{"HEAD", "/healthz", 200, ""},
		{"POST", "/checkpoint/shop/web/app", 500, "checkpointing of shop/web/app failed (the container runs in cluster milan"},
		{"POST", "/checkpoint/shop/web/init", 500, "checkpointing of"},
		{"POST", "/checkpoint/shop/web/debugger", 500, "checkpointing of"},
		{"POST", "/checkpoint/shop/web/other", 404, "container does not exist"},
		{"POST", "/checkpoint/shop/other/app", 404, "pod does not exist"},
		{"GET", "/checkpoint/shop/web/app", 405, ""},
		{"POST", "/run/shop/web/app?cmd=ls", 405, "run endpoint is disabled. Use exec."},
		{"GET", "/logs/", 405, "logs endpoint is disabled. The nodes of cluster milan keep their own logs."},
		{"GET", "/logs/syslog", 405, "logs endpoint is disabled"},
		{"GET", "/debug/pprof/heap", 405, "profiling endpoint is disabled."},
		{"PUT", "/debug/flags/v", 405, "flags endpoint is disabled."},
		{"GET", "/spec/", 404, "404 page not found"},
		{"GET", "/stats/container", 404, ""},
		{"GET", "/", 404, ""},
		{"GET", "/flagz", 404, ""},
	} {
		got := asked(k, c.method, c.path)
		if got.Code != c.code || !strings.Contains(got.Body.String(), c.contains) {
			t.Errorf("%s %s: %d %q, want %d with %q", c.method, c.path, got.Code, got.Body.String(), c.code, c.contains)
		}
	}
	var list corev1.PodList
	if err := json.Unmarshal(asked(k, "GET", "/pods").Body.Bytes(), &list); err != nil || len(list.Items) != 1 || list.Items[0].Spec.NodeName != kubeletNode {
		t.Errorf("/pods: %v %+v", err, list)
	}
	if got := asked(k, "GET", "/metrics").Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("content type %q", got)
	}
	k.options.Synced = func() bool { return false }
	for path, want := range map[string]string{"/healthz": "[-]syncloop failed", "/healthz/syncloop": "not kept current"} {
		if got := asked(k, "GET", path); got.Code != http.StatusInternalServerError || !strings.Contains(got.Body.String(), want) {
			t.Errorf("%s while the node is not kept: %d %q", path, got.Code, got.Body.String())
		}
	}
}

// TestRights: each path needs the right that a kubelet asks for, and what runs commands needs create, by whatever method.
func TestRights(t *testing.T) {
	k := newPages(t)
	var got []string
	for _, served := range k.routes() {
		verb := served.verb
		if verb == "" {
			verb = "by method"
		}
		got = append(got, fmt.Sprintf("%s %s %s %s", served.path, strings.Join(served.methods, ","), verb, strings.Join(pages.Subresources(served.path), ",")))
	}
	want := []string{
		"/  by method proxy",
		"/attach/{namespace}/{pod}/{container} GET,POST create proxy", "/attach/{namespace}/{pod}/{uid}/{container} GET,POST create proxy",
		"/checkpoint/{namespace}/{pod}/{container} POST by method checkpoint",
		"/configz GET by method configz,proxy",
		"/containerLogs/{namespace}/{pod}/{container} GET by method proxy",
		"/debug/flags/  by method proxy", "/debug/pprof/  by method proxy",
		"/exec/{namespace}/{pod}/{container} GET,POST create proxy", "/exec/{namespace}/{pod}/{uid}/{container} GET,POST create proxy",
		"/healthz GET by method healthz,proxy", "/healthz/{check} GET by method healthz,proxy",
		"/logs/  by method log",
		"/metrics GET by method metrics", "/metrics/cadvisor GET by method metrics", "/metrics/probes GET by method metrics",
		"/metrics/resource GET by method metrics", "/metrics/slis GET by method metrics",
		"/pods GET by method pods,proxy",
		"/portForward/{namespace}/{pod} GET,POST create proxy", "/portForward/{namespace}/{pod}/{uid} GET,POST create proxy",
		"/run/  create proxy", "/runningpods GET by method pods,proxy", "/stats/summary GET by method stats",
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
