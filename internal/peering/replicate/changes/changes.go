// SPDX-License-Identifier: Apache-2.0

// Package changes reports to controllers which peers have changed.
package changes

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Feed notifies subscribers of the peers whose state changed. Notifications of one peer are merged until a slow
// subscriber receives them, so Notify never blocks.
type Feed struct {
	mu   sync.Mutex
	subs []*subscription
}

type subscription struct {
	out   chan event.TypedGenericEvent[string]
	wake  chan struct{}
	mu    sync.Mutex
	known map[string]bool
	order []string
}

// Subscribe returns the cluster IDs of peers that change from now on, until ctx ends.
func (c *Feed) Subscribe(ctx context.Context) <-chan event.TypedGenericEvent[string] {
	s := &subscription{out: make(chan event.TypedGenericEvent[string]), wake: make(chan struct{}, 1), known: map[string]bool{}}
	c.mu.Lock()
	c.subs = append(c.subs, s)
	c.mu.Unlock()
	go s.pump(ctx)
	return s.out
}

// Notify reports to all subscribers that a peer has changed.
func (c *Feed) Notify(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subs {
		s.mu.Lock()
		if !s.known[id] {
			s.known[id] = true
			s.order = append(s.order, id)
		}
		s.mu.Unlock()
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *subscription) next() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) == 0 {
		return "", false
	}
	id := s.order[0]
	s.order = s.order[1:]
	delete(s.known, id)
	return id, true
}

func (s *subscription) pump(ctx context.Context) {
	for {
		for id, ok := s.next(); ok; id, ok = s.next() {
			select {
			case s.out <- event.TypedGenericEvent[string]{Object: id}:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}
