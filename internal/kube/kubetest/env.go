// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// InTime is how long a step may take on a busy machine.
const InTime = 30 * time.Second

// Env is what a test does to an API server: what fails there, fails the test.
type Env struct {
	client.Client
	T *testing.T
}

// Must fails the test because of an error.
func (b *Env) Must(err error) {
	b.T.Helper()
	if err != nil {
		b.T.Fatal(err)
	}
}

// Make creates an object.
func (b *Env) Make(object client.Object) {
	b.T.Helper()
	b.Must(b.Create(b.T.Context(), object))
}

// Read reads an object anew.
func (b *Env) Read(object client.Object) {
	b.T.Helper()
	b.Must(b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object))
}

// Edit reads an object, changes it and writes it, again if somebody else was faster.
func (b *Env) Edit(object client.Object, change func()) {
	b.T.Helper()
	b.edit(object, change, func() error { return b.Update(b.T.Context(), object) })
}

// EditStatus is Edit for the status.
func (b *Env) EditStatus(object client.Object, change func()) {
	b.T.Helper()
	b.edit(object, change, func() error { return b.Status().Update(b.T.Context(), object) })
}

func (b *Env) edit(object client.Object, change func(), write func() error) {
	b.T.Helper()
	b.Must(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		b.Read(object)
		change()
		return write()
	}))
}

// Until waits for something to become true.
func (b *Env) Until(what string, done func() bool) {
	b.T.Helper()
	for begin := time.Now(); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > InTime {
			b.T.Fatalf("not within %v: %s", InTime, what)
		}
	}
}

// Eventually waits until nothing is wrong any more, and fails with what is still wrong.
func Eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Since(begin) > InTime {
			t.Fatalf("not within %v: %s: %v", InTime, what, err)
		}
	}
}

// Start runs a process in the background. It ends with stop, or with the test.
func Start(t *testing.T, what string, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s ended: %v", what, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// RoundTripper is a function that is one.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls it.
func (f RoundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
