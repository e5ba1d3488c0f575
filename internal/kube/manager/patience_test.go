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

// TestPatient: a watch that begins while the API server is away gets through when it is back; what is no watch fails at once.
func TestPatient(t *testing.T) {
	server, _ := kubetest.SharedPair(t)
	gate := newGate()
	config := rest.CopyConfig(server)
	config.Dial = gate.dialer.DialContext
	patient, err := client.NewWithWatch(Patient(config), client.Options{})
	must(t, err)
	must(t, patient.List(t.Context(), &corev1.NamespaceList{})) // it knows the kinds now

	gate.shut()
	type begun struct {
		watch.Interface
		error
	}
	watches := make(chan begun, 1)
	go func() {
		began, err := patient.Watch(t.Context(), &corev1.NamespaceList{})
		watches <- begun{began, err}
	}()
	<-gate.refused
	<-gate.refused // it tried again
	if err := patient.List(t.Context(), &corev1.NamespaceList{}); err == nil {
		t.Error("a list waited for the API server")
	}
	select {
	case early := <-watches:
		t.Fatalf("the watch did not wait: %v", early.error)
	default:
	}
	gate.open()
	began := <-watches
	must(t, began.error)
	began.Stop()

	gate.shut()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		began, err := patient.Watch(ctx, &corev1.NamespaceList{})
		watches <- begun{began, err}
	}()
	<-gate.refused
	cancel()
	if ended := <-watches; ended.error == nil {
		t.Error("a watch began although nobody was there")
	}
}

// gate stands before an API server.
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
