// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// news are the peers of which gateways say something else since somebody looked. None is lost, however many there are, and each waits
// once: what is told of it twice is looked at once.
type news struct {
	mu      sync.Mutex
	waiting []string
	// wake has one place: who looks takes everything.
	wake chan struct{}
}

func newNews() *news { return &news{wake: make(chan struct{}, 1)} }

// tell never blocks.
func (n *news) tell(clusterID string) {
	n.mu.Lock()
	switch {
	case clusterID == everyPeer:
		n.waiting = []string{everyPeer} // that is all of them
	case !slices.Contains(n.waiting, everyPeer) && !slices.Contains(n.waiting, clusterID):
		n.waiting = append(n.waiting, clusterID)
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns what waits, in the order in which it was told.
func (n *news) take() (told []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	told, n.waiting = n.waiting, nil
	return told
}

// source asks for a look at each peer that is told of.
func (n *news) source(of func(ctx context.Context, clusterID string) []reconcile.Request) source.Source {
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
