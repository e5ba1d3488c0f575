// SPDX-License-Identifier: Apache-2.0

package services

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// handoverTime is for how long both clusters fill in the endpoints of a Service that run in the peer, after its selector has changed so that the other one has
// to. Proxies take the same endpoint of two slices once. The peer's controllers and proxies need a second or two.
const handoverTime = 5 * time.Second

// handovers knows which cluster fills in the endpoints of each Service that run in the peer: the peer itself by the selector, or this one by name.
type handovers struct {
	mu    sync.Mutex
	state map[types.NamespacedName]handover
}

type handover struct {
	peer  bool
	since time.Time // zero: as long as the Service is known
}

// observe records who has to fill in the endpoints of a Service now. wait is how much longer both do.
func (h *handovers) observe(service types.NamespacedName, peer bool, now time.Time) (wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == nil {
		h.state = map[types.NamespacedName]handover{}
	}
	is, ok := h.state[service]
	switch {
	case !ok:
		is = handover{peer: peer}
	case is.peer != peer:
		is = handover{peer: peer, since: now}
	}
	h.state[service] = is
	if is.since.IsZero() {
		return 0
	}
	return max(is.since.Add(handoverTime).Sub(now), 0)
}

// forget drops what is known of a Service that is gone.
func (h *handovers) forget(service types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.state, service)
}
