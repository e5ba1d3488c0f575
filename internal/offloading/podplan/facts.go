// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/lifecycle"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// SettleTimeout is how long we wait for what usually follows within moments: the event of our own write, or the agreement of the clusters on addresses.
const SettleTimeout = 10 * time.Second

// Offloading is what we know about one local namespace.
type Offloading int

const (
	// Unknown: we have not observed a NamespaceMap. Nothing follows from that.
	Unknown Offloading = iota
	// Mapped: it has a remote namespace.
	Mapped
	// Pending: it is to be offloaded or was, and there is no usable remote namespace at the moment.
	Pending
	// Refused: it is Pending, and the peer reports that it has no usable remote namespace.
	Refused
	// None: it is not offloaded, and has no remote namespace.
	None
)

// Cache is the state of one cache. Synced: it has been filled once. Current: it is also watched at this moment; only then does a missing object mean that the
// object does not exist.
type Cache struct {
	Synced, Current bool
}

// Network is what we know of the network between the pods of the two clusters.
type Network int

const (
	// NetworkUp: they reach each other, or that is not checked.
	NetworkUp Network = iota
	// NetworkUnknown: the process has just started. Whether a pod is Ready does not follow.
	NetworkUnknown
	// NetworkDown: they do not reach each other.
	NetworkDown
)

// Memory is what we know of a local pod beyond the objects. It is empty after a restart.
type Memory struct {
	// Sent: a ShadowPod was, or may have been, written, and the cache has not shown it since.
	Sent bool
	// Sending: a worker is about to create the ShadowPod, or waits for the answer.
	Sending bool
	// Last is the remote pod in its terminal phase.
	Last *corev1.Pod
	// Started: we reported that the pod has started. Finished is the terminal phase that we reported, if any. The cache of local pods may not show that
	// yet, and the API server has forgotten it if it was restored from an older backup.
	Started  bool
	Finished corev1.PodPhase
	// Version is the resource version that our last status write created, Written its time.
	Version string
	Written time.Time
	// PendingSince is the time since which a status change that is not urgent waits to be written.
	PendingSince time.Time
	// Returns counts how often we reported that the pod is Ready again, ReadyAt is the last time.
	Returns int
	ReadyAt time.Time
}

// Live is the ShadowPod as the peer's API server has it; its Shadow is nil if there is none.
type Live struct {
	Shadow *vkv1alpha1.ShadowPod
}

// Facts are what the next step of one pod depends on. All objects have the same name.
type Facts struct {
	// Offloading is what we know about the local namespace. Only if it is Mapped, Mapping has namespaces, and the fields up to Remotes count.
	Offloading Offloading
	Mapping    project.NamespaceMapping
	// Terminating: the remote namespace is being deleted. We write nothing there any more.
	Terminating bool
	// RunWithout are the fields that pods of the namespace may lack in the peer.
	RunWithout []string
	// Compared: the ShadowPods of the mapping have been compared with their intents since this process started.
	Compared bool
	// Shadows and Remotes are the caches of the remote namespace.
	Shadows, Remotes Cache
	// LocalCurrent is Cache.Current of the cache of local pods.
	LocalCurrent bool
	// Reachable: the peer answers. Unreachable: it has not for longer than the timeout.
	Reachable, Unreachable bool
	Network                Network

	// Local is the local pod, Shadow the metadata of the ShadowPod, Remote the pod in the peer; nil if the cache has none. The latter two may be those of
	// an earlier local pod, or of another client.
	Local  *corev1.Pod
	Shadow *metav1.PartialObjectMetadata
	Remote *corev1.Pod
	Memory Memory
	// StuckSince is when this process first saw what StuckOf returns of the remote pod. StuckTimeout is how long that may last, beyond a grace period;
	// 0: for ever.
	StuckSince   time.Time
	StuckTimeout time.Duration
	// Forced: the local pod of the ShadowPod was removed, by others, before anything of it had ended.
	Forced bool
	// Live is set after a step that NeedsLive.
	Live *Live
	Now  time.Time
}

// World is what Observe reads.
type World interface {
	// State fills the fields of the facts before Local. The caches of a mapping that has been stopped are neither synced nor current.
	State(*Facts)
	Local() *corev1.Pod
	Shadow() *metav1.PartialObjectMetadata
	Remote() *corev1.Pod
	// Memory returns the memory of a pod.
	Memory(*corev1.Pod) Memory
	// Forced reports Facts.Forced of a pod that is gone.
	Forced(types.UID) bool
}

// Observe collects the facts while caches and workers go on. The order matters:
//   - a cache is current only if it was before its objects were read, and still is: a watch that resumes in between would make an outdated absence look like
//     a fact, and a mapping that stops empties its caches;
//   - the local pod comes before Memory.Sent, and no worker begins to send a pod that is being deleted;
//   - Memory.Sent and Sending come before the ShadowPod: the cache has the ShadowPod before it clears Sent;
//   - Memory.Last comes after the remote pod: the cache has shown the terminal phase, and Last keeps it, before the pod disappears.
func Observe(w World) Facts {
	var f, after Facts
	w.State(&f)
	if f.Local = w.Local(); f.Local != nil {
		f.Memory = w.Memory(f.Local)
	}
	if f.Offloading == Mapped {
		f.Shadow, f.Remote = w.Shadow(), w.Remote()
	}
	if f.Shadow != nil {
		f.Forced = w.Forced(types.UID(f.Shadow.Annotations[labels.Fence]))
	}
	if f.Local != nil {
		f.Memory.Last = w.Memory(f.Local).Last
	}
	w.State(&after)
	f.LocalCurrent, f.Shadows, f.Remotes = f.LocalCurrent && after.LocalCurrent, f.Shadows.and(after.Shadows), f.Remotes.and(after.Remotes)
	return f
}

func (c Cache) and(other Cache) Cache {
	return Cache{Synced: c.Synced && other.Synced, Current: c.Current && other.Current}
}

// shadow returns the ShadowPod if it is that of the local pod.
func (f *Facts) shadow() *metav1.PartialObjectMetadata {
	if f.Shadow == nil || !f.Mapping.Reflected(f.Shadow) || f.Shadow.Annotations[labels.Fence] != string(f.Local.UID) {
		return nil
	}
	return f.Shadow
}

// remote returns the remote pod if it was created for the local pod.
func (f *Facts) remote() *corev1.Pod {
	if f.Remote == nil || !Belongs(f.Mapping, f.Local, f.Remote, f.Shadow) {
		return nil
	}
	return f.Remote
}

// end returns the remembered remote pod if it has ended for good.
func (f *Facts) end() *corev1.Pod {
	if f.Memory.Last != nil && f.ended(f.Memory.Last) {
		return f.Memory.Last
	}
	return nil
}

// finished reports whether the local pod is in a terminal phase, or was.
func (f *Facts) finished() bool { return f.Memory.Finished != "" || f.showsEnd() }

// showsEnd reports whether the local pod shows a terminal phase. Once lag is over, a reported one that it does not show is forgotten.
func (f *Facts) showsEnd() bool { return podphase.Final(f.Local.Status.Phase) }

// vanished reports whether a pod that must not run twice has disappeared from the peer, with its ShadowPod, while no process observed it: it may have
// finished. A remote pod that ended, but not for good, proves nothing: its successor may have run meanwhile.
func (f *Facts) vanished() bool {
	policy := f.Local.Spec.RestartPolicy
	return policy != corev1.RestartPolicyAlways && policy != "" && (f.Memory.Started || f.Local.Status.StartTime != nil)
}

// Belongs reports whether a remote pod was created for this local pod. Equal names do not prove that.
func Belongs(m project.NamespaceMapping, local, remote *corev1.Pod, shadow *metav1.PartialObjectMetadata) bool {
	if remote.Labels[labels.Origin] != m.LocalID {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(remote)
	if fence := remote.Annotations[labels.Fence]; fence != "" {
		return fence == string(local.UID) && owner != nil && owner.Kind == "ShadowPod"
	}
	return shadow != nil && owner != nil && owner.UID == shadow.UID && shadow.Annotations[labels.Fence] == string(local.UID)
}

// Another reports whether the peer's pod of the name of a local pod is that of an earlier one: what is asked of the pod by its name would be asked of
// the other.
func Another(local, remote metav1.Object) bool {
	fence := remote.GetAnnotations()[labels.Fence]
	return fence != "" && fence != string(local.GetUID())
}

// ended reports whether a remote pod in a terminal phase has ended for good. If the peer creates it again, reporting its end here would make the workload run
// twice.
func (f *Facts) ended(remote *corev1.Pod) bool {
	return f.abandoned() || lifecycle.Ended(f.Local.Spec.RestartPolicy, remote)
}

// abandoned reports whether the local pod is being deleted, and the peer will not create it again: its ShadowPod is gone or being deleted. Until then the
// peer creates a pod again that it has lost, and a controller that knows the local one as ended may have created its replacement.
func (f *Facts) abandoned() bool {
	if f.Local.DeletionTimestamp == nil {
		return false
	}
	if f.Offloading != Mapped || f.Live != nil && f.Live.Shadow == nil {
		return true
	}
	if sent := f.shadow(); sent != nil {
		return sent.DeletionTimestamp != nil
	}
	return f.Shadows.Current && !f.Memory.Sent
}
