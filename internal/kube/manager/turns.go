// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// InTurns makes the queue of a controller in which namespaces take turns, and none has all workers. Other queues have one line for all:
// there, a namespace with a thousand objects that fail, or take long, stands before one with a single good object.
func InTurns(workers int) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(controller string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		order := &turns{share: max(1, workers-max(1, workers/4)), lanes: map[string]*lane{}}
		line := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: controller, Queue: order})
		delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: controller, Queue: line})
		return &turning{turns: order, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: controller, DelayingQueue: delayed})}
	}
}

// turning is a queue that tells the order of turns when a worker is free again.
type turning struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	turns *turns
}

// Done is called by a worker that asks for the next object then: nobody else has to be woken for what this makes possible.
func (q *turning) Done(request reconcile.Request) {
	q.turns.free(request.Namespace)
	q.TypedRateLimitingInterface.Done(request)
}

// turns is the order in which a queue hands out what is in it.
type turns struct {
	// share is how many objects of one namespace are worked on at once.
	share int

	mu      sync.Mutex
	lanes   map[string]*lane
	order   []*lane // those with something to do, and a worker left to do it
	waiting int
}

// lane is one namespace.
type lane struct {
	ready   []reconcile.Request
	working int
	inTurn  bool
}

// Touch is called for what waits already.
func (t *turns) Touch(reconcile.Request) {}

// Push adds what does not wait and is not worked on.
func (t *turns) Push(request reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lanes[request.Namespace]
	if l == nil {
		l = &lane{}
		t.lanes[request.Namespace] = l
	}
	l.ready = append(l.ready, request)
	t.waiting++
	t.line(l)
}

// line puts a namespace in line, if it is its turn.
func (t *turns) line(l *lane) {
	if !l.inTurn && len(l.ready) > 0 && l.working < t.share {
		l.inTurn = true
		t.order = append(t.order, l)
	}
}

// Len is what waits; 0 if nothing of it can be handed out now.
func (t *turns) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		return 0
	}
	return t.waiting
}

// Pop hands out the next. It is called only if there is one.
func (t *turns) Pop() reconcile.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.order[0]
	t.order[0] = nil
	t.order = t.order[1:]
	next := l.ready[0]
	l.ready = l.ready[1:]
	t.waiting--
	l.working++
	l.inTurn = false
	t.line(l)
	return next
}

// free tells that a worker has ended with an object of a namespace.
func (t *turns) free(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lanes[namespace]
	if l == nil || l.working == 0 {
		return
	}
	l.working--
	t.line(l)
	if l.working == 0 && len(l.ready) == 0 {
		delete(t.lanes, namespace)
	}
}
