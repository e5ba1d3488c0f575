// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/offloading/podplan"
)

// world is what the facts about one pod are observed in. It implements podplan.World.
type world struct {
	pods                *pods
	mapping             *mapping
	offloading          podplan.Offloading
	localKey, remoteKey types.NamespacedName
}

// observe collects the facts about a pod. mapping is nil if its namespace has no remote namespace.
func (p *pods) observe(key types.NamespacedName) (*mapping, podplan.Facts) {
	mapping, known := p.engine.mappings.local(key.Namespace)
	w := world{pods: p, mapping: mapping, offloading: known, localKey: key}
	if mapping != nil {
		w.remoteKey = types.NamespacedName{Namespace: mapping.Remote, Name: key.Name}
	}
	return mapping, podplan.Observe(w)
}

// State implements podplan.World.
func (w world) State(f *podplan.Facts) {
	remote := &w.pods.engine.remote
	f.Offloading, f.Now, f.LocalCurrent = w.offloading, time.Now(), w.pods.local.Current(fanin.Every)
	f.Reachable, f.Unreachable = remote.reachable(), remote.unreachableFor(w.pods.engine.options.UnreachableTimeout)
	if w.mapping == nil {
		return
	}
	f.Mapping, f.Terminating, f.Compared = w.mapping.NamespaceMapping, w.mapping.terminating.Load(), w.pods.isCompared(w.mapping)
	state := func(source *fanin.Source) podplan.Cache {
		return podplan.Cache{Synced: source.Synced(w.mapping.Remote), Current: source.Current(w.mapping.Remote)}
	}
	if now, _ := w.pods.engine.mappings.local(w.mapping.Local); now == w.mapping {
		f.Shadows, f.Remotes = state(w.pods.shadows), state(w.pods.remote)
	}
}

// Local implements podplan.World.
func (w world) Local() *corev1.Pod {
	local, _ := w.pods.local.Get(w.localKey).(*corev1.Pod)
	return local
}

// Shadow implements podplan.World.
func (w world) Shadow() *metav1.PartialObjectMetadata {
	shadow, _ := w.pods.shadows.Get(w.remoteKey).(*metav1.PartialObjectMetadata)
	return shadow
}

// Remote implements podplan.World.
func (w world) Remote() *corev1.Pod {
	remote, _ := w.pods.remote.Get(w.remoteKey).(*corev1.Pod)
	return remote
}

// Memory implements podplan.World.
func (w world) Memory(local *corev1.Pod) podplan.Memory {
	w.pods.mu.Lock()
	defer w.pods.mu.Unlock()
	if known := w.pods.memories[local.UID]; known != nil {
		return known.Memory
	}
	return podplan.Memory{}
}
