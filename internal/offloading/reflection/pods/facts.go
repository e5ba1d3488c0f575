// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// world is what the facts about one pod are observed in. It implements podplan.World.
type world struct {
	pods                *Pods
	mapping             *engine.Mapping
	offloading          podplan.Offloading
	localKey, remoteKey types.NamespacedName
}

// observe collects the facts about a pod. mapping is nil if its namespace has no remote namespace.
func (p *Pods) observe(key types.NamespacedName) (*engine.Mapping, podplan.Facts) {
	mapping, known := p.engine.Namespaces.Local(key.Namespace)
	w := world{pods: p, mapping: mapping, offloading: known, localKey: key}
	if mapping != nil {
		w.remoteKey = types.NamespacedName{Namespace: mapping.Remote, Name: key.Name}
	}
	return mapping, podplan.Observe(w)
}

// State implements podplan.World.
func (w world) State(f *podplan.Facts) {
	remote := w.pods.engine.Remote
	f.Offloading, f.Now, f.LocalCurrent = w.offloading, time.Now(), w.pods.Local.Current(fanin.Every)
	f.Reachable, f.Unreachable = remote.Reachable(), remote.UnreachableFor(w.pods.options.UnreachableTimeout)
	f.Network = podplan.Network(w.pods.network.Load())
	if w.mapping == nil {
		return
	}
	f.Mapping, f.Terminating, f.Compared = w.mapping.NamespaceMapping, w.mapping.Terminating(), w.mapping.Compared(Kind)
	f.RunWithout = w.mapping.RunWithout()
	state := func(source *fanin.Source) podplan.Cache {
		return podplan.Cache{Synced: source.Synced(w.mapping.Remote), Current: source.Current(w.mapping.Remote)}
	}
	if now, _ := w.pods.engine.Namespaces.Local(w.mapping.Local); now == w.mapping {
		f.Shadows, f.Remotes = state(w.pods.Shadows), state(w.pods.Remote)
	}
}

// Local implements podplan.World.
func (w world) Local() *corev1.Pod {
	local, _ := w.pods.Local.Get(w.localKey).(*corev1.Pod)
	return local
}

// Shadow implements podplan.World.
func (w world) Shadow() *metav1.PartialObjectMetadata {
	shadow, _ := w.pods.Shadows.Get(w.remoteKey).(*metav1.PartialObjectMetadata)
	return shadow
}

// Remote implements podplan.World.
func (w world) Remote() *corev1.Pod {
	remote, _ := w.pods.Remote.Get(w.remoteKey).(*corev1.Pod)
	return remote
}

// Memory implements podplan.World.
func (w world) Memory(local *corev1.Pod) podplan.Memory {
	return w.pods.Memory(local.UID)
}

// Forced implements podplan.World.
func (w world) Forced(pod types.UID) bool {
	w.pods.mu.Lock()
	defer w.pods.mu.Unlock()
	_, ok := w.pods.forced[pod]
	return ok
}

// Memory returns what is remembered of the pod with this UID.
func (p *Pods) Memory(pod types.UID) podplan.Memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.memories[pod]; known != nil {
		return known.Memory
	}
	return podplan.Memory{}
}

// trimLocalPod is engine.TrimLocal. A pod that reads all its annotations keeps the large one.
func trimLocalPod(object client.Object) {
	if pod, ok := object.(*corev1.Pod); ok && podspec.ReadsAnnotations(pod) {
		pod.ManagedFields = nil
		return
	}
	engine.TrimLocal(object)
}

// trimRemotePod keeps what we read of a remote pod: its owner and its status. The peer decides how much there is.
func trimRemotePod(object client.Object) {
	if pod, ok := object.(*corev1.Pod); ok {
		owner := metav1.GetControllerOf(pod)
		pod.ManagedFields, pod.Finalizers, pod.OwnerReferences, pod.Spec = nil, nil, nil, corev1.PodSpec{}
		if owner != nil {
			pod.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		podstatus.Trim(&pod.Status)
		kept := map[string]string{labels.Fence: pod.Annotations[labels.Fence]}
		if generation := pod.Annotations[labels.LocalGeneration]; generation != "" && len(generation) < 20 {
			kept[labels.LocalGeneration] = generation
		}
		pod.Annotations = kept
		known := kinds.DoubtfulLabels(pod.Labels) // selectors of budgets may need them
		pod.Labels = map[string]string{labels.Origin: pod.Labels[labels.Origin]}
		maps.Copy(pod.Labels, known)
	}
}

// OfNamespace returns the pods of the node in a namespace of this cluster, which the caller must not change.
func (p *Pods) OfNamespace(namespace string) (all []*corev1.Pod) {
	for _, object := range p.Local.All(namespace) {
		if pod, ok := object.(*corev1.Pod); ok {
			all = append(all, pod)
		}
	}
	return all
}

// Another is podplan.Another of a pod of this cluster; false if the peer has no pod of its name.
func (p *Pods) Another(local types.NamespacedName) bool {
	mapping, _ := p.engine.Namespaces.Local(local.Namespace)
	pod := p.Local.Get(local)
	if mapping == nil || pod == nil {
		return false
	}
	remote := p.Remote.Get(types.NamespacedName{Namespace: mapping.Remote, Name: local.Name})
	return remote != nil && podplan.Another(pod, remote)
}

// LabelsThere returns what the cache keeps of the labels of a remote pod, those that only some providers let it have; false if the peer has no such pod.
func (p *Pods) LabelsThere(remote types.NamespacedName) (map[string]string, bool) {
	pod := p.Remote.Get(remote)
	if pod == nil {
		return nil, false
	}
	return pod.GetLabels(), true
}
