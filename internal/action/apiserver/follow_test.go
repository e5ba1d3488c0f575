// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/await"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// wire is a TCP proxy in front of an API server. Tests cut it and mend it.
type wire struct {
	listener net.Listener
	target   string
	down     atomic.Bool
	mutex    sync.Mutex
	open     []net.Conn
	accepted atomic.Int32
}

func newWire(t *testing.T, config *rest.Config) (*rest.Config, *wire) {
	t.Helper()
	parsed, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	target := parsed.Host
	if target == "" {
		target = config.Host
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, target: target}
	t.Cleanup(func() { _ = listener.Close(); w.cut() })
	go w.serve()
	through := rest.CopyConfig(config)
	through.Host = "https://" + listener.Addr().String()
	return through, w
}

func (w *wire) serve() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.accepted.Add(1)
		far, err := net.Dial("tcp", w.target)
		if err != nil || w.down.Load() {
			_ = near.Close()
			continue
		}
		w.mutex.Lock()
		w.open = append(w.open, near, far)
		w.mutex.Unlock()
		go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
		go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
	}
}

func (w *wire) cut() {
	w.down.Store(true)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, conn := range w.open {
		_ = conn.Close()
	}
	w.open = nil
}

func (w *wire) mend() { w.down.Store(false) }

func testFollowReconnects(t *testing.T, config *rest.Config) {
	direct := actiontest.Connect(t, config)
	through, wire := newWire(t, config)
	c := actiontest.Connect(t, through)
	actiontest.Ensure(t, direct, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "follow"}})

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	observed := make(chan int, 100)
	result := make(chan error, 1)
	go func() {
		result <- await.Follow(ctx, c, &corev1.ConfigMapList{}, func(maps []corev1.ConfigMap) (bool, error) {
			observed <- len(maps)
			return len(maps) == 2, nil
		}, client.InNamespace("follow"))
	}()
	if n := <-observed; n != 0 {
		t.Fatalf("saw %d at first", n)
	}
	actiontest.Create(t, direct, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "follow", Name: "a"}})
	if n := <-observed; n != 1 {
		t.Fatalf("saw %d after the first creation", n)
	}
	wire.cut()
	tried := wire.accepted.Load()
	actiontest.Create(t, direct, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "follow", Name: "b"}})
	if err := actiontest.Eventually(ctx, func(context.Context) error {
		if wire.accepted.Load() < tried+2 {
			return errors.New("not tried again yet")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	wire.mend()
	if err := <-result; err != nil {
		t.Errorf("follow: %v", err)
	}
}

func testFollowEnds(t *testing.T, config *rest.Config) {
	c := actiontest.Connect(t, config)
	wrong := errors.New("wrong")
	err := await.Follow(t.Context(), c, &corev1.NamespaceList{}, func([]corev1.Namespace) (bool, error) { return false, wrong })
	if !errors.Is(err, wrong) {
		t.Errorf("the caller's error: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = await.Follow(ctx, c, &corev1.NamespaceList{}, func([]corev1.Namespace) (bool, error) { return false, nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the end of the context: %v", err)
	}
}
