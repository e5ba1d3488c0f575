// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/network/report"
)

// follower1 follows one gateway, which the handler is.
func follower1(t *testing.T, handler http.HandlerFunc) *gateways {
	t.Helper()
	server := httptest.NewServer(handler)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateways{port: number, news: newNews(), followers: map[string]*follower{}, client: reportClient()}
	g.follow(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gateway", UID: "1"}, Status: corev1.PodStatus{PodIP: host}}, 0)
	t.Cleanup(func() {
		g.stopAll()
		server.CloseClientConnections()
		server.Close()
	})
	return g
}

// wait takes events until the last word of the gateway fits.
func wait(t *testing.T, g *gateways, what string, fits func(heard) bool) time.Duration {
	t.Helper()
	began := time.Now()
	limit := time.After(kubetest.InTime)
	for !fits(g.heardOf()[0]) {
		select {
		case <-g.news.wake:
		case <-limit:
			t.Fatalf("not within %s: %s; last %+v", kubetest.InTime, what, g.heardOf()[0])
		}
	}
	return time.Since(began)
}

func line(up bool) string {
	return fmt.Sprintf(`{"lane":0,"node":"n1","peers":[{"clusterID":"milan-id","up":%t}]}`+"\n", up)
}

func isUp(h heard) bool {
	peer := h.peer("milan-id")
	return peer != nil && peer.Up && !h.silent
}

// TestFollow: a gateway that talks nonsense, ends, sends elsewhere or hangs is asked again, and never believed in between.
func TestFollow(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	g := follower1(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != report.Path {
			t.Errorf("asked for %s", r.URL.Path)
		}
		switch asked.Add(1) {
		case 1:
			http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusFound)
		case 2:
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		case 3:
			_, _ = w.Write([]byte("nonsense\n"))
		case 4:
			_, _ = w.Write(bytes.Repeat([]byte("x"), 2*maxLine)) // no end of the line
		case 5:
			_, _ = w.Write([]byte(line(true))) // and ends
		default:
			_, _ = w.Write([]byte(line(true)))
			w.(http.Flusher).Flush()
			<-r.Context().Done() // hangs
		}
	})
	took := wait(t, g, "the first line that can be understood", isUp)
	if n := asked.Load(); n < 5 {
		t.Errorf("heard after %d attempts", n)
	}
	t.Logf("heard after %s and %d attempts", took.Round(time.Millisecond), asked.Load())
	wait(t, g, "a gateway that hangs is silent", func(h heard) bool { return h.silent })
	if quiet := time.Since(g.heardOf()[0].at); quiet < silence-100*time.Millisecond {
		t.Errorf("silent after %s", quiet)
	}
	wait(t, g, "asked again, it is heard", isUp)
}

// TestFollowNews: each change is told once, and nothing else is.
func TestFollowNews(t *testing.T) {
	t.Parallel()
	lines := make(chan string)
	g := follower1(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case text := <-lines:
				_, _ = w.Write([]byte(text))
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	next := func(want string) {
		t.Helper()
		select {
		case <-g.news.wake:
			if got := g.news.take(); !slices.Equal(got, []string{want}) {
				t.Errorf("told of %q, want %q", got, want)
			}
		case <-time.After(kubetest.InTime):
			t.Fatalf("not told of %q", want)
		}
	}
	next(everyPeer) // the pod
	lines <- line(false)
	next(everyPeer) // its first word
	for range 50 {
		lines <- line(false)
	}
	lines <- line(true)
	next("milan-id")
	lines <- line(true)
	lines <- line(false)
	next("milan-id")
	lines <- line(false)
	lines <- `{"error":"no device","peers":[{"clusterID":"milan-id"}]}` + "\n"
	next(everyPeer)
}

// TestNoNewsIsLost: however many peers change while nobody looks, each is looked at, once.
func TestNoNewsIsLost(t *testing.T) {
	t.Parallel()
	g := &gateways{news: newNews()}
	f := &follower{heard: heard{silent: true}, alarm: time.AfterFunc(time.Hour, func() {})}
	defer f.alarm.Stop()
	const many = 1000
	said := &report.Gateway{}
	for i := range many {
		said.Peers = append(said.Peers, report.Peer{ClusterID: fmt.Sprintf("peer-%d", i)})
	}
	g.note(f, said) // the first word: all of them
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if got := g.news.take(); !slices.Equal(got, []string{everyPeer}) {
		t.Fatalf("told of %d peers, want all at once", len(got))
	}
	for _, up := range []bool{true, false} {
		next := &report.Gateway{}
		for _, peer := range said.Peers {
			next.Peers = append(next.Peers, report.Peer{ClusterID: peer.ClusterID, Up: up})
		}
		g.note(f, next)
	}
	if err := g.news.source(func(_ context.Context, clusterID string) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: clusterID}}}
	}).Start(ctx, queue); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for range many {
		request, ended := queue.Get()
		if ended {
			t.Fatal("the queue ended")
		}
		seen[request.Name]++
		queue.Done(request)
	}
	if len(seen) != many || queue.Len() > 0 {
		t.Errorf("%d of %d peers looked at, %d more looks wait", len(seen), many, queue.Len())
	}
}
