// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"liqo.io/liqo/internal/kube/kubetest"
)

// gate is on the way to the API server. It holds requests for the pods of all nodes while it is shut.
type gate struct {
	to    http.RoundTripper
	waits chan struct{}

	mu    sync.Mutex
	open  chan struct{}
	lines []*line
}

// line is a watch that the gate can end with an expired resource version.
type line struct {
	io.ReadCloser
	mu   sync.Mutex
	lost io.Reader
}

const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too old ` +
	`resource version","code":410}}` + "\n"

func (l *line) Read(into []byte) (int, error) {
	n, err := l.ReadCloser.Read(into)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return l.lost.Read(into)
	}
	return n, err
}

func (g *gate) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Path != "/api/v1/pods" {
		return g.to.RoundTrip(request)
	}
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
	default:
		g.waits <- struct{}{}
		select {
		case <-open:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
	response, err := g.to.RoundTrip(request)
	if err == nil && request.URL.Query().Get("watch") != "" {
		one := &line{ReadCloser: response.Body}
		response.Body = one
		g.mu.Lock()
		g.lines = append(g.lines, one)
		g.mu.Unlock()
	}
	return response, err
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

// lose ends all watches with an expired resource version, so that they must list again.
func (g *gate) lose() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.lines {
		one.mu.Lock()
		one.lost = strings.NewReader(expired)
		one.mu.Unlock()
		one.ReadCloser.Close()
	}
	g.lines = nil
}

// While pods are listed for the first time or again, no pod counts as missing. With restricted traffic, nothing is known without the first list: a plan
// without it would cut off all pods.
func TestPodsAreNotForgotten(t *testing.T) {
	t.Run("Addresses", func(t *testing.T) { podsAreNotForgotten(t, Wants{Namespace: "liqo", Pods: true}) })
	t.Run("Restricted", func(t *testing.T) { podsAreNotForgotten(t, Wants{Namespace: "liqo", Restricted: true}) })
}

func podsAreNotForgotten(t *testing.T, wants Wants) {
	t.Helper()
	cfg := kubetest.Cluster(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	crds := "../../../deployments/liqo/crds/"
	_, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		crds + "net.liqo.io_tunnelendpoints.yaml", crds + "virtualkubelet.liqo.io_namespacemaps.yaml",
	}})
	must(err)
	clients, err := kubernetes.NewForConfig(cfg)
	must(err)
	_, err = clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	must(err)
	_, err = clients.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
	must(err)
	_, err = clients.CoreV1().Pods("shop").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	must(err)

	proxy := &gate{waits: make(chan struct{}, 1000)}
	proxy.shut()
	own := rest.CopyConfig(cfg)
	own.ContentType = "application/json"
	own.Wrap(func(to http.RoundTripper) http.RoundTripper { proxy.to = to; return proxy })
	changed := make(chan struct{}, 1000)
	caches, err := NewCaches(own, wants, func() { changed <- struct{}{} })
	must(err)
	caches.podsTimeout = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- caches.Run(ctx) }()
	defer func() { cancel(); must(<-ended) }()
	until := func(what string, check func(Objects, bool, error) bool) {
		t.Helper()
		deadline := time.After(20 * time.Second)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			objects, known, err := caches.Objects(t.Context())
			if check(objects, known, err) {
				return
			}
			select {
			case <-tick.C:
			case <-changed:
			case <-deadline:
				t.Fatalf("%s: known %v, %v, %d pods, unknown %v", what, known, err, len(objects.Pods), objects.PodsUnknown)
			}
		}
	}

	until("the first list is slow", func(o Objects, known bool, err error) bool {
		if known && !o.PodsUnknown {
			t.Fatalf("pods count as known: %d", len(o.Pods))
		}
		return known != wants.Restricted && err != nil && len(o.Nodes) == 1
	})
	close(proxy.open)
	listed := func(o Objects, known bool, err error) bool {
		return known && err == nil && !o.PodsUnknown && len(o.Pods) == 1
	}
	until("the list is complete", listed)

	proxy.shut()
	for len(proxy.waits) > 0 {
		<-proxy.waits
	}
	until("it is watched", func(Objects, bool, error) bool { proxy.mu.Lock(); defer proxy.mu.Unlock(); return len(proxy.lines) > 0 })
	proxy.lose()
	select {
	case <-proxy.waits:
	case <-time.After(20 * time.Second):
		t.Fatal("an expired watch is not started again")
	}
	if objects, known, err := caches.Objects(t.Context()); !listed(objects, known, err) {
		t.Errorf("while pods are listed again: known %v, %v, %d pods, unknown %v", known, err, len(objects.Pods), objects.PodsUnknown)
	}
	close(proxy.open)
}
