// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kubemanager "liqo.io/liqo/internal/kube/manager"
)

const (
	// peerBytes bounds, as JSON, what is cached of one peer. A peer has a request, a map of namespaces and two network configurations there, some 100 KB
	// at most. It decides itself how many objects there are and how large, and all peers share the memory of this process.
	peerBytes = 16 << 20
	// objectBytes is counted for every object in addition: what an empty one costs.
	objectBytes = 4 << 10
	// overflowPause is for how long nothing is cached of a peer that exceeded the bound.
	overflowPause = 10 * time.Minute
)

// sizes counts the objects of a peer that are cached.
type sizes struct {
	limit int

	mu       sync.Mutex
	each     map[string]int // by kind and name
	total    int
	exceeded time.Time
}

func newSizes(limit int) *sizes { return &sizes{limit: limit, each: map[string]int{}} }

// put counts an object, or its new size. first is true for the call that exceeds the bound; fits stays false from then on.
func (s *sizes) put(id string, size int, now time.Time) (fits, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.exceeded.IsZero() {
		return false, false
	}
	s.total += size - s.each[id]
	s.each[id] = size
	if s.total <= s.limit {
		return true, false
	}
	s.exceeded, s.each = now, nil
	return false, true
}

func (s *sizes) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total -= s.each[id]
	delete(s.each, id)
}

// overflowed reports whether the bound was exceeded, and whether that is so long ago that another cache may be tried.
func (s *sizes) overflowed(now time.Time) (is, retry bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.exceeded.IsZero(), !s.exceeded.IsZero() && now.Sub(s.exceeded) >= overflowPause
}

func sizeID(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetName()
}

// transform is called for each object before it is cached.
func (p *peerCache) transform(in any) (any, error) {
	trimmed, err := kubemanager.Trim(in)
	object, ok := trimmed.(*unstructured.Unstructured)
	if err != nil || !ok {
		return trimmed, err
	}
	text, err := json.Marshal(object.Object)
	if err != nil {
		return nil, fmt.Errorf("measure %s of the peer: %w", sizeID(object), err)
	}
	fits, first := p.sizes.put(sizeID(object), objectBytes+len(text), time.Now())
	if first {
		p.conn.worker.log.Info("the peer has too many or too large objects in our tenant namespace; they are not cached any more", "namespace", p.namespace)
		p.conn.setReadError(fmt.Sprintf("the provider has objects of more than %d bytes in our namespace %s there, so this cluster has stopped "+
			"reading them and tries again in %s; ask its administrator to delete what is not of this peering",
			p.sizes.limit, p.namespace, overflowPause))
		p.end()
	}
	if !fits {
		object.Object = map[string]any{"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "metadata": map[string]any{
			"namespace": object.GetNamespace(), "name": object.GetName(), "resourceVersion": object.GetResourceVersion(),
		}}
	}
	return object, nil
}
