// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/kube/kubetest"
)

// TestWaitWatches: a watch that starts while the API server is unreachable gets through when it is back; other requests fail at once.
func TestWaitWatches(t *testing.T) {
	server, _ := kubetest.SharedPair(t)
	gate := newGate()
	config := rest.CopyConfig(server)
	config.Dial = gate.dialer.DialContext
	waiting, err := client.NewWithWatch(WaitWatches(config), client.Options{})
	must(t, err)
	must(t, waiting.List(t.Context(), &corev1.NamespaceList{})) // discovery is done

	gate.shut()
	type result struct {
		watch.Interface
		error
	}
	watches := make(chan result, 1)
	go func() {
		w, err := waiting.Watch(t.Context(), &corev1.NamespaceList{})
		watches <- result{w, err}
	}()
	<-gate.refused
	<-gate.refused // the second attempt
	if err := waiting.List(t.Context(), &corev1.NamespaceList{}); err == nil {
		t.Error("a list succeeded without an API server")
	}
	select {
	case early := <-watches:
		t.Fatalf("the watch did not wait: %v", early.error)
	default:
	}
	gate.open()
	opened := <-watches
	must(t, opened.error)
	opened.Stop()

	gate.shut()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		w, err := waiting.Watch(ctx, &corev1.NamespaceList{})
		watches <- result{w, err}
	}()
	<-gate.refused
	cancel()
	if ended := <-watches; ended.error == nil {
		t.Error("a watch succeeded without an API server")
	}
}

// gate lets connections to an API server pass, or refuses them.
type gate struct {
	dialer  *connrotation.Dialer
	isShut  atomic.Bool
	refused chan struct{}
}

func newGate() *gate {
	g := &gate{refused: make(chan struct{})}
	g.dialer = connrotation.NewDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		if g.isShut.Load() {
			select {
			case g.refused <- struct{}{}:
			default:
			}
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
	return g
}

func (g *gate) shut() {
	g.isShut.Store(true)
	g.dialer.CloseAll()
}

func (g *gate) open() { g.isShut.Store(false) }
