// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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
	direct := connect(t, config)
	through, wire := newWire(t, config)
	c := connect(t, through)
	ensure(t, direct, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "follow"}})

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	observed := make(chan int, 100)
	result := make(chan error, 1)
	go func() {
		result <- Follow(ctx, c, &corev1.ConfigMapList{}, func(maps []corev1.ConfigMap) (bool, error) {
			observed <- len(maps)
			return len(maps) == 2, nil
		}, client.InNamespace("follow"))
	}()
	if n := <-observed; n != 0 {
		t.Fatalf("saw %d at first", n)
	}
	create(t, direct, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "follow", Name: "a"}})
	if n := <-observed; n != 1 {
		t.Fatalf("saw %d after the first creation", n)
	}
	wire.cut()
	tried := wire.accepted.Load()
	create(t, direct, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "follow", Name: "b"}})
	if err := eventually(ctx, func(context.Context) error {
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

// TestFollowWatches: a change arrives through the watch, at once and without another list. The clock of the bubble stands
// still until all wait, so a relist after its interval would show as elapsed time.
func TestFollowWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				lists++
				return c.List(ctx, list, options...)
			},
		}).Build()
		start := time.Now()
		result := make(chan error, 1)
		go func() {
			result <- Follow(t.Context(), c, &corev1.ConfigMapList{}, func(maps []corev1.ConfigMap) (bool, error) { return len(maps) == 1, nil })
		}()
		synctest.Wait() // now Follow watches
		create(t, c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "follow", Name: "a"}})
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if lists != 1 || time.Since(start) != 0 {
			t.Errorf("the change arrived after %d lists and %s", lists, time.Since(start))
		}
	})
}

func testFollowEnds(t *testing.T, config *rest.Config) {
	c := connect(t, config)
	wrong := errors.New("wrong")
	err := Follow(t.Context(), c, &corev1.NamespaceList{}, func([]corev1.Namespace) (bool, error) { return false, wrong })
	if !errors.Is(err, wrong) {
		t.Errorf("the caller's error: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = Follow(ctx, c, &corev1.NamespaceList{}, func([]corev1.Namespace) (bool, error) { return false, nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the end of the context: %v", err)
	}
}

func TestRetry(t *testing.T) {
	kind := schema.GroupResource{Resource: "foreignclusters"}
	webhook := apierrors.NewInternalError(errors.New(`failed calling webhook "fc.validate.liqo.io": connection refused`))
	group := schema.GroupVersion{Group: "storage.liqo.io", Version: "v1alpha1"}
	loading := fmt.Errorf("find the kind: %w", &apiutil.ErrResourceDiscoveryFailed{group: apierrors.NewNotFound(kind, "")})
	for name, test := range map[string]struct {
		errs  []error // one per attempt; the last one repeats
		tries int
		want  func(error) bool
	}{
		"webhook comes back":     {[]error{webhook, webhook, nil}, 3, func(err error) bool { return err == nil }},
		"API server comes back":  {[]error{errors.New("connection refused"), nil}, 2, func(err error) bool { return err == nil }},
		"not found is final":     {[]error{apierrors.NewNotFound(kind, "x")}, 1, apierrors.IsNotFound},
		"forbidden for a moment": {[]error{apierrors.NewForbidden(kind, "x", nil), nil}, 2, func(err error) bool { return err == nil }},
		"forbidden every time":   {[]error{apierrors.NewForbidden(kind, "x", nil)}, maxRefusals, apierrors.IsForbidden},
		"definitions are loaded": {[]error{loading, loading, nil}, 3, func(err error) bool { return err == nil }},
		"a conflict is retried":  {[]error{apierrors.NewConflict(kind, "x", nil), nil}, 2, func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			err := retry(t.Context(), func(context.Context) error {
				tries++
				return test.errs[min(tries, len(test.errs))-1]
			})
			if tries != test.tries || !test.want(err) {
				t.Errorf("%d tries, error %v", tries, err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := retry(ctx, func(context.Context) error { return webhook })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "fc.validate.liqo.io") {
		t.Errorf("at the end of the context, the error does not name the last failure: %v", err)
	}
}
