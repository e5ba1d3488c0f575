// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// TestFairQueue: no namespace gets all workers, none waits until another one is finished, and no request is lost.
func TestFairQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)
		q := FairQueue(4, nil)("test", limiter)
		defer q.ShutDown()
		ready := make(chan reconcile.Request, 1)
		get := func() { // as a worker
			next, down := q.Get()
			if !down {
				ready <- next
			}
		}
		next := func(want reconcile.Request) {
			t.Helper()
			go get()
			synctest.Wait()
			select {
			case got := <-ready:
				if got != want {
					t.Fatalf("%v, want %v", got, want)
				}
			default:
				t.Fatalf("no request, want %v; %d are waiting", want, q.Len())
			}
		}
		for i := range 10 {
			q.Add(request("a", fmt.Sprint(i)))
		}
		q.Add(request("b", "0"))
		q.Add(request("b", "0")) // a duplicate
		next(request("a", "0"))
		next(request("b", "0"))
		next(request("a", "1"))
		next(request("a", "2"))
		go get() // three workers are the share of a
		synctest.Wait()
		if len(ready) > 0 || q.Len() != 0 {
			t.Fatalf("%d handed out beyond the share, %d waiting", len(ready), q.Len())
		}
		q.Add(request("c", "0"))
		synctest.Wait()
		if got := <-ready; got != request("c", "0") {
			t.Errorf("%v was handed out before the request of a namespace without workers", got)
		}
		q.Add(request("a", "1")) // an event while it is processed
		q.Done(request("a", "1"))
		next(request("a", "3"))
		q.AddRateLimited(request("a", "2"))
		q.Done(request("a", "2"))
		for i := range 6 {
			next(request("a", fmt.Sprint(4+i)))
			q.Done(request("a", fmt.Sprint(4+i)))
		}
		next(request("a", "1"))
		q.Done(request("a", "1"))
		go get()
		synctest.Wait()
		if len(ready) > 0 {
			t.Errorf("%v was not delayed by the rate limiter", <-ready)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := <-ready; got != request("a", "2") {
			t.Errorf("%v, want the delayed request", got)
		}
		for _, held := range []reconcile.Request{request("a", "0"), request("a", "2"), request("a", "3"), request("b", "0"), request("c", "0")} {
			q.Done(held)
		}
		if all, ok := q.(*fairQueue); !ok || !all.order.Empty() {
			t.Errorf("left: %+v", all.order)
		}
	})
}
