// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/internal/kube/fairqueue"
)

// FairQueue returns a constructor of work queues, for the option NewQueue of a controller. The queue serves peers round-robin, and the namespaces of
// each peer, and never gives all workers to one of them, see package fairqueue. peerOf returns the peer of a namespace without waiting; nil if
// namespaces belong to no peers.
func FairQueue(
	workers int, peerOf func(namespace string) string,
) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(controller string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		namespace := func(request reconcile.Request) string { return request.Namespace }
		order := fairqueue.NewRoundRobin(workers, namespace)
		if peerOf != nil {
			order = fairqueue.NewByPeer(workers, func(request reconcile.Request) string { return peerOf(request.Namespace) }, namespace)
		}
		queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: controller, Queue: order})
		delayed := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: controller, Queue: queue})
		return &fairQueue{order: order, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: controller, DelayingQueue: delayed})}
	}
}

// fairQueue reports to the order when a worker has finished.
type fairQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	order *fairqueue.RoundRobin[reconcile.Request]
}

// Done needs to wake no other worker for a request that becomes ready here: the worker that calls Done calls Get next.
func (q *fairQueue) Done(request reconcile.Request) {
	q.order.Release(request)
	q.TypedRateLimitingInterface.Done(request)
}
