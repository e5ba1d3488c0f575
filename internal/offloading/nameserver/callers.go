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
	pods      map[netip.Addr]pod
	addresses map[types.NamespacedName][]netip.Addr
	// changed is closed at the next change.
	changed chan struct{}
}

// pod is one of a peer.
type pod struct {
	types.NamespacedName
	// server is where its hosts file leads the names of the API server; nil if nowhere.
	server *names.APIServer
}

// caller is what names mean for a pod.
type caller struct {
	view *names.View
	// server is nil also if the pod is not known.
	server *names.APIServer
}

// NewCallers returns one that knows no pod.
func NewCallers() *Callers {
	return &Callers{
		known: &names.Known{}, pods: map[netip.Addr]pod{}, addresses: map[types.NamespacedName][]netip.Addr{}, changed: make(chan struct{}),
	}
}

// Know replaces what the remote namespaces mean.
func (c *Callers) Know(known *names.Known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = known
	c.wake()
}

// Set replaces the addresses of a pod, and where its hosts file leads the names of the API server. A pod that has ended has no address, since its
// network gives it to others.
func (c *Callers) Set(name types.NamespacedName, addresses []netip.Addr, server *names.APIServer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, address := range c.addresses[name] {
		if c.pods[address].NamespacedName == name { // it may have another pod already
			delete(c.pods, address)
		}
	}
	delete(c.addresses, name)
	if len(addresses) == 0 {
		return
	}
	c.addresses[name] = addresses
	for _, address := range addresses {
		c.pods[address] = pod{name, server}
	}
	c.wake()
}

// wake lets those look again who wait.
func (c *Callers) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// find returns what names mean for a pod by its address; without a view if it is not known. For that case, any is a view if the question has the same
// answer for the pods of all peers, and changed is closed at the next change.
func (c *Callers) find(from netip.Addr, q *names.Query) (found caller, any *names.View, changed <-chan struct{}) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if pod, ok := c.pods[from]; ok {
		if view := c.known.In(pod.Namespace); view != nil {
			return caller{view, pod.server}, nil, nil
		}
	}
	return caller{}, c.known.Any(q), c.changed
}

// wait returns what names mean for a pod, as soon as its address is known: a kubelet reports it about a second after the pod has started. It returns no view if
// ctx ends before.
func (c *Callers) wait(ctx context.Context, from netip.Addr, q *names.Query) caller {
	for {
		found, any, changed := c.find(from, q)
		if found.view == nil {
			found.view = any
		}
		if found.view != nil {
			return found
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return caller{}
		}
	}
}
