// SPDX-License-Identifier: Apache-2.0

// Package fairqueue orders the keys of a work queue so that namespaces get workers round-robin and no namespace gets all of them. In a FIFO queue, a
// namespace with a thousand objects that fail, or that take long, would delay the only object of another namespace. Where namespaces belong to peers, the
// peers get workers round-robin first, and the namespaces of each peer among them: a peer with 500 namespaces gets no more than one with a single namespace.
//
// RoundRobin knows no retries, delays or controllers: its two users, manager.FairQueue and Queue, add those. Queue is for loops that write to another cluster:
// it can be paused while that does not answer. The proof is TestRoundRobin, TestQueueIsFair and TestAttackM12.
package fairqueue

import (
	"math"
	"sync"
)

// RoundRobin holds waiting keys and implements the interface Queue of client-go's package workqueue. It is safe for concurrent use.
type RoundRobin[K comparable] struct {
	// peerShare and share are how many keys of one peer, and of one namespace, are processed at the same time.
	peerShare, share int
	peer, namespace  func(K) string

	mu     sync.Mutex
	groups map[string]*group[K] // by peer
	order  []*group[K]          // those with a key that may be processed
	// processing are the buckets of the keys that workers have: the peer of a namespace may become known only after its first keys.
	processing map[K]*bucket[K]
	waiting    int // keys in all buckets
}

// group holds the namespaces of one peer.
type group[K comparable] struct {
	peer       string
	buckets    map[string]*bucket[K] // by namespace
	order      []*bucket[K]          // those with a waiting key and a worker of their share left
	processing int
	inOrder    bool
}

// bucket holds the waiting keys of one namespace.
type bucket[K comparable] struct {
	of         *group[K]
	namespace  string
	waiting    []K
	processing int
	inOrder    bool
}

// NewRoundRobin returns an empty RoundRobin for so many workers. A namespace may have three quarters of them, but at least one worker is left for the
// others, if there are two.
func NewRoundRobin[K comparable](workers int, namespace func(K) string) *RoundRobin[K] {
	r := newRoundRobin(func(K) string { return "" }, namespace)
	r.share = max(1, workers-max(1, workers/4))
	return r
}

// NewByPeer returns an empty RoundRobin in which peers take turns, and the namespaces of a peer in its turns. A peer may have seven eighths of the
// workers, but at least one is left for the other peers, if there are two. Its namespaces leave one of these to each other, if there are three.
func NewByPeer[K comparable](workers int, peer, namespace func(K) string) *RoundRobin[K] {
	r := newRoundRobin(peer, namespace)
	r.peerShare = max(1, workers-max(1, workers/8))
	r.share = max(1, min(workers-max(1, workers/4), r.peerShare-1))
	return r
}

func newRoundRobin[K comparable](peer, namespace func(K) string) *RoundRobin[K] {
	return &RoundRobin[K]{
		peerShare: math.MaxInt, share: math.MaxInt, peer: peer, namespace: namespace, groups: map[string]*group[K]{}, processing: map[K]*bucket[K]{},
	}
}

// Share returns how many keys of one namespace are processed at the same time.
func (r *RoundRobin[K]) Share() int { return r.share }

// Touch implements workqueue.Queue; a key that is added again keeps its position.
func (r *RoundRobin[K]) Touch(K) {}

// Push adds a key that is not waiting and not being processed.
func (r *RoundRobin[K]) Push(key K) {
	peer, namespace := r.peer(key), r.namespace(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[peer]
	if g == nil {
		g = &group[K]{peer: peer, buckets: map[string]*bucket[K]{}}
		r.groups[peer] = g
	}
	b := g.buckets[namespace]
	if b == nil {
		b = &bucket[K]{of: g, namespace: namespace}
		g.buckets[namespace] = b
	}
	b.waiting = append(b.waiting, key)
	r.waiting++
	r.schedule(b)
}

// schedule appends the bucket to the order of its peer, and the peer to the order of all, if one of its keys may be processed now.
func (r *RoundRobin[K]) schedule(b *bucket[K]) {
	g := b.of
	if !b.inOrder && len(b.waiting) > 0 && b.processing < r.share {
		b.inOrder = true
		g.order = append(g.order, b)
	}
	if !g.inOrder && len(g.order) > 0 && g.processing < r.peerShare {
		g.inOrder = true
		r.order = append(r.order, g)
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
	g := r.order[0]
	r.order[0] = nil
	r.order = r.order[1:]
	b := g.order[0]
	g.order[0] = nil
	g.order = g.order[1:]
	next := b.waiting[0]
	b.waiting = b.waiting[1:]
	r.waiting--
	b.processing++
	g.processing++
	b.inOrder, g.inOrder = false, false
	r.processing[next] = b
	r.schedule(b)
	return next
}

// Release gives the worker back that processed the key, and forgets a namespace, and a peer, without keys.
func (r *RoundRobin[K]) Release(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.processing[key]
	if b == nil {
		return
	}
	g := b.of
	delete(r.processing, key)
	b.processing--
	g.processing--
	r.schedule(b)
	if b.processing == 0 && len(b.waiting) == 0 {
		delete(g.buckets, b.namespace)
	}
	if len(g.buckets) == 0 {
		delete(r.groups, g.peer)
	}
}

// Empty reports whether nothing is waiting or being processed.
func (r *RoundRobin[K]) Empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.groups) == 0 && len(r.order) == 0 && len(r.processing) == 0 && r.waiting == 0
}
