// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

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
	g := &gateways{port: number, changed: make(chan event.TypedGenericEvent[string], 256), followers: map[string]*follower{}, client: reportClient()}
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
		case <-g.changed:
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
		case got := <-g.changed:
			if got.Object != want {
				t.Errorf("told of %q, want %q", got.Object, want)
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
