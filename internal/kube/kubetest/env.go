// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// InTime is how long a step may take on a busy machine, at least ten times its usual duration. It protects against hanging and judges no speed.
const InTime = 30 * time.Second

// Env is a client of an API server for a test. Every error fails the test.
type Env struct {
	client.Client
	T *testing.T
}

// Must fails the test if err is not nil.
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

// Read refreshes an object from the API server.
func (b *Env) Read(object client.Object) {
	b.T.Helper()
	b.Must(b.Get(b.T.Context(), client.ObjectKeyFromObject(object), object))
}

// Edit reads an object, changes it and updates it, and retries on a conflict.
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

// Until waits until a condition holds.
func (b *Env) Until(what string, holds func() bool) {
	b.T.Helper()
	Eventually(b.T, what, func() error {
		if !holds() {
			return errFalse
		}
		return nil
	})
}

var errFalse = errors.New("the condition is still false")

// Eventually polls check until it returns nil. After InTime it fails the test with the last error, and with what the test has read meanwhile.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	seen := readsOf(t)
	seen.forget()
	start := time.Now()
	for {
		began := time.Now()
		err := check()
		if err == nil {
			return
		}
		if time.Since(start) > InTime {
			t.Fatalf("not within %v: %s: %v%s", InTime, what, err, seen)
		}
		time.Sleep(pause(time.Since(start), time.Since(began)))
	}
}

// pause is how long to wait before the next question. The first ones follow each other as fast as an API server can answer; later ones are rarer, so
// that a test that waits leaves the processors to what it waits for: a twentieth of what it has waited so far, and no less than the last question took.
func pause(waited, took time.Duration) time.Duration {
	const shortest, longest = 5 * time.Millisecond, 50 * time.Millisecond
	return min(max(shortest, waited/20, took), longest)
}

// Start calls run in the background. Its context ends when stop is called, or with the test.
func Start(t testing.TB, what string, run func(ctx context.Context) error) (stop func()) {
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

// RoundTripper is a function that implements http.RoundTripper.
type RoundTripper func(*http.Request) (*http.Response, error)

func (f RoundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
