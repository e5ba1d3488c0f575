// SPDX-License-Identifier: Apache-2.0

// Package refusals recognises what a peer refuses to accept, and remembers which metadata it does not accept, so
// that the copies of objects are written without.
//
// It sends no request. What the error of a peer's webhook means, project.Refused decides.
package refusals

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

const (
	// Retry is when to write an object again that the peer has refused: its policies or its version may have changed.
	Retry = 5 * time.Minute
	// MetadataRetry is for how long we leave out what the peer refused. Then we ask again: its administrator may have extended the list.
	MetadataRetry = time.Hour
	// maxRefusals bounds the keys that are remembered of one kind. The peer chooses what it refuses.
	maxRefusals = 256
)

// Metadata remembers which metadata of one kind the peer does not accept, and when it refused. Without that, one annotation would keep an object
// from being reflected, and each object would cost a refused write.
type Metadata struct {
	mu                  sync.Mutex
	labels, annotations map[string]time.Time
	nodePorts           time.Time
}

// NewMetadata returns an empty memory.
func NewMetadata() *Metadata {
	return &Metadata{labels: map[string]time.Time{}, annotations: map[string]time.Time{}}
}

// Learn remembers what of an object the peer refused. It returns false if that is nothing new: then the object cannot be reflected at all. Keys that
// the object does not have are not remembered: the peer could name new ones for ever.
func (r *Metadata) Learn(local client.Object, err error, now time.Time) (isNew bool) {
	if !Visible(err) {
		return false
	}
	refused, found := project.Refused(err.Error())
	if !found {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(now)
	add := func(known map[string]time.Time, has map[string]string, keys project.Keys) {
		for _, key := range keys {
			_, isKnown := known[key]
			if _, applies := has[key]; applies && !isKnown && len(known) < maxRefusals {
				known[key], isNew = now, true
			}
		}
	}
	add(r.labels, local.GetLabels(), refused.Labels)
	add(r.annotations, local.GetAnnotations(), refused.Annotations)
	if refused.NodePorts && forcesPorts(local) && r.nodePorts.IsZero() {
		r.nodePorts, isNew = now, true
	}
	return isNew
}

func forcesPorts(local client.Object) bool {
	return local.GetAnnotations()[labels.ForceRemoteNodePort] == "true"
}

// expire forgets what was refused long ago. The caller holds the lock.
func (r *Metadata) expire(now time.Time) {
	old := func(_ string, at time.Time) bool { return now.Sub(at) >= MetadataRetry }
	maps.DeleteFunc(r.labels, old)
	maps.DeleteFunc(r.annotations, old)
	if old("", r.nodePorts) {
		r.nodePorts = time.Time{}
	}
}

// Skip returns what to leave out: what the user denied, and what the peer refused.
func (r *Metadata) Skip(denied project.Denied, now time.Time) project.Denied {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(now)
	if len(r.labels) > 0 {
		denied.Labels = slices.Concat(denied.Labels, slices.Collect(maps.Keys(r.labels)))
	}
	if len(r.annotations) > 0 {
		denied.Annotations = slices.Concat(denied.Annotations, slices.Collect(maps.Keys(r.annotations)))
	}
	denied.NodePorts = denied.NodePorts || !r.nodePorts.IsZero()
	return denied
}

// Lacks returns, as the error to report, what the copy of an object lacks because the peer refused it; nil if the copy lacks nothing.
func (r *Metadata) Lacks(local client.Object) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lacks []string
	for key := range local.GetLabels() {
		if _, ok := r.labels[key]; ok {
			lacks = append(lacks, "label "+key)
		}
	}
	for key := range local.GetAnnotations() {
		if _, ok := r.annotations[key]; ok {
			lacks = append(lacks, "annotation "+key)
		}
	}
	if !r.nodePorts.IsZero() && forcesPorts(local) {
		lacks = append(lacks, "node ports of its choice")
	}
	if len(lacks) == 0 {
		return nil
	}
	slices.Sort(lacks)
	return fmt.Errorf("the remote cluster does not accept all of this object, so its copy there lacks: %s; the administrator of that cluster can allow it "+
		"(values peers.metadata, peers.services)", strings.Join(lacks, ", "))
}
