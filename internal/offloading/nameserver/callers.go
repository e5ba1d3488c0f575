// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"context"
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/internal/offloading/names"
)

// Callers knows for which peer each address asks. It is safe for concurrent use.
type Callers struct {
	mu        sync.RWMutex
	known     *names.Known
	pods      map[netip.Addr]types.NamespacedName
	addresses map[types.NamespacedName][]netip.Addr
	// changed is closed at the next change.
	changed chan struct{}
}

// NewCallers returns one that knows no pod.
func NewCallers() *Callers {
	return &Callers{
		known: &names.Known{}, pods: map[netip.Addr]types.NamespacedName{}, addresses: map[types.NamespacedName][]netip.Addr{}, changed: make(chan struct{}),
	}
}

// Know replaces what the remote namespaces mean.
func (c *Callers) Know(known *names.Known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = known
	c.wake()
}

// Set replaces the addresses of a pod; a pod that has ended has none, since its network gives them to others.
func (c *Callers) Set(pod types.NamespacedName, addresses []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.addresses[pod] {
		if c.pods[one] == pod { // it may have another pod already
			delete(c.pods, one)
		}
	}
	delete(c.addresses, pod)
	if len(addresses) == 0 {
		return
	}
	c.addresses[pod] = addresses
	for _, one := range addresses {
		c.pods[one] = pod
	}
	c.wake()
}

// wake lets those look again who wait.
func (c *Callers) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// find returns what names mean for a pod by its address; nil if it is not known. For that case, any is a view if the question has the same answer for the
// pods of all peers, and changed is closed at the next change.
func (c *Callers) find(from netip.Addr, q *names.Query) (view, any *names.View, changed <-chan struct{}) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if pod, found := c.pods[from]; found {
		if view = c.known.In(pod.Namespace); view != nil {
			return view, nil, nil
		}
	}
	return nil, c.known.Any(q), c.changed
}

// wait returns what names mean for a pod, as soon as its address is known: a kubelet reports it about a second after the pod has started. It returns nil if
// ctx ends before.
func (c *Callers) wait(ctx context.Context, from netip.Addr, q *names.Query) *names.View {
	for {
		view, any, changed := c.find(from, q)
		if view == nil {
			view = any
		}
		if view != nil {
			return view
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
