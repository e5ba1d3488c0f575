// SPDX-License-Identifier: Apache-2.0

// Package fairqueue orders the keys of a work queue so that namespaces get workers round-robin and no namespace gets all of them. In a FIFO queue, a
// namespace with a thousand objects that fail, or that take long, would delay the only object of another namespace.
//
// It must not know retries, delays or controllers: its two users, manager.FairQueue and the queue of package reflection, add those. The proof is
// TestRoundRobin.
package fairqueue

import "sync"

// RoundRobin holds waiting keys and implements the interface Queue of client-go's package workqueue. It is safe for concurrent use.
type RoundRobin[K any] struct {
	share     int
	namespace func(K) string

	mu      sync.Mutex
	buckets map[string]*bucket[K] // by namespace
	order   []*bucket[K]          // those with a waiting key and a worker of their share left
	waiting int                   // keys in all buckets
}

// bucket holds the waiting keys of one namespace.
type bucket[K any] struct {
	waiting    []K
	processing int
	inOrder    bool
}

// NewRoundRobin returns an empty RoundRobin for so many workers. A namespace may have three quarters of them, but at least one worker is left for the
// others, if there are two.
func NewRoundRobin[K any](workers int, namespace func(K) string) *RoundRobin[K] {
	return &RoundRobin[K]{share: max(1, workers-max(1, workers/4)), namespace: namespace, buckets: map[string]*bucket[K]{}}
}

// Share returns how many keys of one namespace are processed at the same time.
func (r *RoundRobin[K]) Share() int { return r.share }

// Touch implements workqueue.Queue; a key that is added again keeps its position.
func (r *RoundRobin[K]) Touch(K) {}

// Push adds a key that is not waiting and not being processed.
func (r *RoundRobin[K]) Push(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	namespace := r.namespace(key)
	b := r.buckets[namespace]
	if b == nil {
		b = &bucket[K]{}
		r.buckets[namespace] = b
	}
	b.waiting = append(b.waiting, key)
	r.waiting++
	r.schedule(b)
}

// schedule appends the bucket to the order if one of its keys may be processed now.
func (r *RoundRobin[K]) schedule(b *bucket[K]) {
	if !b.inOrder && len(b.waiting) > 0 && b.processing < r.share {
		b.inOrder = true
		r.order = append(r.order, b)
	}
}

// Len returns the number of waiting keys, or 0 if none of them may be processed now.
func (r *RoundRobin[K]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) == 0 {
		return 0
	}
	return r.waiting
}

// Pop returns the next key to process. It must be called only if Len is not 0, and followed by Release.
func (r *RoundRobin[K]) Pop() K {
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

// Release gives the worker back that processed the key, and forgets a namespace without keys.
func (r *RoundRobin[K]) Release(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	namespace := r.namespace(key)
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

// Empty reports whether nothing is waiting or being processed.
func (r *RoundRobin[K]) Empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.buckets) == 0 && len(r.order) == 0 && r.waiting == 0
}
