// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// FairQueue returns a constructor of work queues, for the option NewQueue of a controller. The queue serves namespaces round-robin and never
// gives all workers to one of them. In a FIFO queue, a namespace with a thousand objects that fail, or that take long, would delay the only
// object of another namespace.
func FairQueue(workers int) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(controller string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		buckets := &roundRobin{share: max(1, workers-max(1, workers/4)), buckets: map[string]*bucket{}}
		queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: controller, Queue: buckets})
		delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: controller, Queue: queue})
		return &fairQueue{buckets: buckets, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: controller, DelayingQueue: delayed})}
	}
}

// fairQueue reports to its buckets when a worker has finished.
type fairQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	buckets *roundRobin
}

// Done needs to wake no other worker for a request that becomes ready here: the worker that calls Done calls Get next.
func (q *fairQueue) Done(request reconcile.Request) {
	q.buckets.release(request.Namespace)
	q.TypedRateLimitingInterface.Done(request)
}

// roundRobin orders the requests of a queue. It implements workqueue.Queue.
type roundRobin struct {
	// share is how many requests of one namespace are processed at the same time.
	share int

	mu      sync.Mutex
	buckets map[string]*bucket // by namespace
	order   []*bucket          // those with a waiting request and a worker of their share left
	waiting int                // requests in all buckets
}

// bucket holds the requests of one namespace.
type bucket struct {
	waiting    []reconcile.Request
	processing int
	inOrder    bool
}

// Touch implements workqueue.Queue; a request that is added again keeps its position.
func (r *roundRobin) Touch(reconcile.Request) {}

// Push implements workqueue.Queue.
func (r *roundRobin) Push(request reconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[request.Namespace]
	if b == nil {
		b = &bucket{}
		r.buckets[request.Namespace] = b
	}
	b.waiting = append(b.waiting, request)
	r.waiting++
	r.schedule(b)
}

// schedule appends the bucket to the order if one of its requests may be processed now.
func (r *roundRobin) schedule(b *bucket) {
	if !b.inOrder && len(b.waiting) > 0 && b.processing < r.share {
		b.inOrder = true
		r.order = append(r.order, b)
	}
}

// Len returns the number of waiting requests, or 0 if none of them may be processed now.
func (r *roundRobin) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) == 0 {
		return 0
	}
	return r.waiting
}

// Pop implements workqueue.Queue. The queue calls it only if Len is not 0.
func (r *roundRobin) Pop() reconcile.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.order[0]
	r.order[0] = nil
	r.order = r.order[1:]
	next := b.waiting[0]
	b.waiting = b.waiting[1:]
	r.waiting--
	b.processing++
	b.inOrder = false
	r.schedule(b)
	return next
}

// release gives the worker of a namespace back, and drops the bucket if it has become empty.
func (r *roundRobin) release(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[namespace]
	if b == nil || b.processing == 0 {
		return
	}
	b.processing--
	r.schedule(b)
	if b.processing == 0 && len(b.waiting) == 0 {
		delete(r.buckets, namespace)
	}
}
