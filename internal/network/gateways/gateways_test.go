// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/internal/network/report"
)

// pipes are a network in memory: connections of dial arrive at the listener. They work in a synctest bubble.
type pipes struct {
	net.Listener
	arrived chan net.Conn
	closed  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.arrived:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} }

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.arrived <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// through returns clients that dial by a function.
func through(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(*tls.Config) *http.Client {
	return func(proof *tls.Config) *http.Client {
		reports := reportClient(proof)
		reports.Transport.(*http.Transport).DialContext = dial
		return reports
	}
}

// follow returns gateways that follow one gateway, which the handler is. It needs a synctest bubble.
func follow(t *testing.T, handler http.HandlerFunc) *Reader {
	t.Helper()
	network := &pipes{arrived: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler}
	served := make(chan error)
	go func() { served <- server.Serve(network) }()
	g := &Reader{port: 1, Updates: newUpdates(), followers: map[string]*follower{}, connect: through(network.dial)}
	g.follow(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "gateway", UID: "1"}, Status: corev1.PodStatus{PodIP: "192.0.2.1"}}, 0)
	t.Cleanup(func() {
		g.stopAll()
		_ = server.Close()
		<-served
	})
	return g
}

// wait waits for updates until the last report of the gateway fits. In a bubble it fails when nothing can happen any more.
func wait(g *Reader, fits func(report.Observation) bool) report.Observation {
	for !fits(g.Observations()[0]) {
		<-g.Updates.wake
	}
	return g.Observations()[0]
}

func line(up bool) string {
	return fmt.Sprintf(`{"lane":0,"node":"n1","peers":[{"clusterID":"milan-id","up":%t}]}`+"\n", up)
}

func isUp(h report.Observation) bool {
	peer := h.Peer("milan-id")
	return peer != nil && peer.Up && !h.Silent
}

// TestFollow: a gateway that sends garbage, ends, redirects or hangs is connected to again, and never believed in between.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		g := follow(t, func(w http.ResponseWriter, r *http.Request) {
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
		wait(g, isUp)
		if n := asked.Load(); n < 5 {
			t.Errorf("a report after %d attempts", n)
		}
		silent := wait(g, func(o report.Observation) bool { return o.Silent })
		if since := time.Since(silent.At); since != silence {
			t.Errorf("silent %s after the last line, want %s", since, silence)
		}
		wait(g, isUp)
	})
}

// TestFollowUpdates: each change is recorded once, and nothing else is.
func TestFollowUpdates(t *testing.T) { synctest.Test(t, testFollowUpdates) }

func testFollowUpdates(t *testing.T) {
	lines := make(chan string)
	g := follow(t, func(w http.ResponseWriter, r *http.Request) {
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
		<-g.Updates.wake
		if got := g.Updates.take(); !slices.Equal(got, []string{want}) {
			t.Errorf("updates of %q, want %q", got, want)
		}
	}
	next(report.EveryPeer) // the pod
	lines <- line(false)
	next(report.EveryPeer) // its first report
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
	next(report.EveryPeer)
}

// TestNoUpdateIsLost: however many peers change before the next take, each is enqueued once.
func TestNoUpdateIsLost(t *testing.T) {
	t.Parallel()
	g := &Reader{Updates: newUpdates()}
	f := &follower{observation: report.Observation{Silent: true}, alarm: time.AfterFunc(time.Hour, func() {})}
	defer f.alarm.Stop()
	const many = 1000
	first := &report.Gateway{}
	for i := range many {
		first.Peers = append(first.Peers, report.Peer{ClusterID: fmt.Sprintf("peer-%d", i)})
	}
	g.note(f, first) // the first report: all of them
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	if got := g.Updates.take(); !slices.Equal(got, []string{report.EveryPeer}) {
		t.Fatalf("updates of %d peers, want one for all", len(got))
	}
	for _, up := range []bool{true, false} {
		next := &report.Gateway{}
		for _, peer := range first.Peers {
			next.Peers = append(next.Peers, report.Peer{ClusterID: peer.ClusterID, Up: up})
		}
		g.note(f, next)
	}
	if err := g.Updates.Source(func(_ context.Context, clusterID string) []reconcile.Request {
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
		t.Errorf("%d of %d peers enqueued, %d more requests wait", len(seen), many, queue.Len())
	}
}
