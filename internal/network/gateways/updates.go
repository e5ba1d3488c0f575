// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"liqo.io/liqo/internal/network/report"
)

// updates are the peers whose state changed since the last take. None is lost, however many there are, and each waits only once.
type updates struct {
	mu      sync.Mutex
	waiting []string
	// wake has a capacity of one, because take returns everything.
	wake chan struct{}
}

func newUpdates() *updates { return &updates{wake: make(chan struct{}, 1)} }

// add never blocks.
func (n *updates) add(clusterID string) {
	n.mu.Lock()
	switch {
	case clusterID == report.EveryPeer:
		n.waiting = []string{report.EveryPeer} // includes the others
	case !slices.Contains(n.waiting, report.EveryPeer) && !slices.Contains(n.waiting, clusterID):
		n.waiting = append(n.waiting, clusterID)
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns the waiting peers in the order in which they were added.
func (n *updates) take() (clusterIDs []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clusterIDs, n.waiting = n.waiting, nil
	return clusterIDs
}

// Source enqueues the requests of each changed peer.
func (n *updates) Source(of func(ctx context.Context, clusterID string) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			for {
				select {
				case <-n.wake:
				case <-ctx.Done():
					return
				}
				for _, clusterID := range n.take() {
					for _, request := range of(ctx, clusterID) {
						queue.Add(request)
					}
				}
			}
		}()
		return nil
	})
}
