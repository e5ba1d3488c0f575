// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/shadow"
)

// Whatever decides reads terminal phases only, so the others are recorded late, for users: a burst of new pods does not pay for them.
const pendingDelay, runningDelay = 30 * time.Second, time.Minute

// kubeletDelay is how long a kubelet may take to report how a pod ended that was deleted without grace period.
const kubeletDelay = 30 * time.Second

// Facts are what the next step of one ShadowPod depends on.
type Facts struct {
	// Shadow is the ShadowPod, Pod the pod of the same name; nil if there is none. A cache trims both: of the pod it keeps our
	// metadata and the phase; of the ShadowPod, the fields that can change.
	Shadow *vkv1alpha1.ShadowPod
	Pod    *corev1.Pod
	// Live means that the facts were read from the API server, the pod first and then the ShadowPod. In this order, a ShadowPod with
	// another UID than the owner of the pod proves that the owner is gone for good. A pod that the cache does not have need not be
	// read: creating it fails if it exists.
	Live bool
	// PodLive means that only the pod was read from the API server, after Shadow was seen in deletion. In this order, no pod proves that the ShadowPod
	// has none and gets none: a controller that reads a ShadowPod in deletion creates no pod, and a deletion is never undone.
	PodLive bool
	Now     time.Time
}

// Step is what to do, in the order of the fields.
type Step struct {
	// NeedsLive: call Plan again with live facts. Nothing else is set.
	NeedsLive bool
	// NeedsPod: call Plan again with the same ShadowPod and the pod as the API server has it, or none. Nothing else is set.
	NeedsPod bool
	// Unmanaged: a pod that is not ours has the name. Leave it alone.
	Unmanaged bool
	// Delete the pod: its ShadowPod is gone, or is being deleted. Period is the grace period in seconds; 0 means that of the pod.
	Delete bool
	Period int64
	// Free the name: remove from the ShadowPod what keeps it until its pod is gone.
	Free bool
	// Phase is to be recorded in the ShadowPod, with the UID of the pod and its Architecture; empty if nothing is to be recorded.
	Phase vkv1alpha1.ShadowPodPhase
	// Release: remove our finalizer from the pod. The phase must be recorded before. With live facts, the pod must not have changed since.
	Release bool
	// Create the pod.
	Create bool
	// Amend the pod: its metadata, or the mutable part of its spec, differs from the ShadowPod.
	Amend bool
	// RequeueAfter is when to reconcile again at the latest; zero if an event will come.
	RequeueAfter time.Duration
}

// Plan returns the next step for one ShadowPod. The rules:
//   - a pod is created only if the API server reports that the ShadowPod exists, is not being deleted, and has not ended;
//   - a pod that has ended, as defined by Ended, never runs again;
//   - a pod of another ShadowPod is never touched, unless that ShadowPod is gone for good;
//   - a ShadowPod that is deleted stays until its pod is gone, held by our finalizer. Those without it are deleted in the foreground, which the garbage
//     collector of Kubernetes follows as well, with several requests for each pod and one limit of requests for all kinds.
func Plan(f Facts) Step {
	switch {
	case f.Pod == nil:
		return planAbsent(f)
	case Owner(f.Pod) == "":
		if waits(f.Shadow) {
			return planFree(f) // the name is not ours to wait for
		}
		return Step{Unmanaged: f.Shadow != nil}
	case f.Shadow == nil:
		return planOrphan(f)
	case Owner(f.Pod) != string(f.Shadow.UID):
		return planSuperseded(f)
	default:
		return planPresent(f)
	}
}

func planAbsent(f Facts) Step {
	if waits(f.Shadow) {
		return planFree(f)
	}
	if f.Shadow == nil || f.Shadow.DeletionTimestamp != nil || finished(f.Shadow.Status.Phase) {
		return Step{}
	}
	return Step{NeedsLive: !f.Live, Create: f.Live}
}

// planFree handles a ShadowPod in deletion that, as far as we know, has no pod. A cache may not have the pod yet, or not its owner.
func planFree(f Facts) Step { return Step{NeedsPod: !f.PodLive, Free: f.PodLive} }

// waits reports whether a ShadowPod is being deleted and waits until its pod is gone. Dependents of other kinds, which nothing of ours creates, are
// not waited for: they hold no name.
func waits(shadow *vkv1alpha1.ShadowPod) bool {
	return shadow != nil && shadow.DeletionTimestamp != nil && slices.ContainsFunc(shadow.Finalizers, keepsName)
}

// keepsName reports whether a finalizer keeps a ShadowPod until its pod is gone.
func keepsName(finalizer string) bool {
	return finalizer == labels.FinalizerPodGone || finalizer == metav1.FinalizerDeleteDependents
}

// planOrphan handles a pod without a ShadowPod of its name. The garbage collector deletes it, unless its owner reference was removed.
func planOrphan(f Facts) Step {
	release, remove := f.Pod.DeletionTimestamp != nil && held(f.Pod), f.Pod.DeletionTimestamp == nil && reference(f.Pod) == nil
	if !release && !remove {
		return Step{}
	}
	return Step{NeedsLive: !f.Live, Release: f.Live && release, Delete: f.Live && remove}
}

// planSuperseded handles a pod of an earlier ShadowPod of the same name. The new ShadowPod waits until it is gone.
func planSuperseded(f Facts) Step {
	if !f.Live {
		return Step{NeedsLive: true}
	}
	deleting := f.Pod.DeletionTimestamp != nil
	return Step{Delete: !deleting, Release: deleting && held(f.Pod)}
}

func planPresent(f Facts) Step {
	var step Step
	if waits(f.Shadow) {
		if period := Period(f.Shadow); f.Pod.DeletionTimestamp == nil || shorter(period, f.Pod) {
			return Step{Delete: true, Period: period}
		}
	}
	pod, recorded, deleting := f.Pod, finished(f.Shadow.Status.Phase), f.Pod.DeletionTimestamp != nil
	terminal := Terminal(pod)
	switch {
	case recorded, f.Shadow.DeletionTimestamp != nil: // nothing will run again
	case terminal:
		end, sure := ended(f)
		if !sure {
			return Step{NeedsLive: true}
		}
		if end {
			step.Phase = vkv1alpha1.ShadowPodPhase(pod.Status.Phase)
		}
	default:
		step.Phase, step.RequeueAfter = underway(f)
		if deleting && step.Phase == "" && shadow.Architecture(f.Shadow, f.Pod) != f.Shadow.Status.Architecture {
			step.Phase, _ = present(pod) // before the pod is gone, which the next one follows
		}
	}
	if deleting && held(pod) {
		step.Release = terminal || recorded || f.Shadow.DeletionTimestamp != nil
		if wait, forced := forcedRelease(f); forced && !step.Release {
			if wait <= 0 && !f.Live {
				return Step{NeedsLive: true} // its kubelet may have reported its end, which is recorded first
			}
			step.Release, step.RequeueAfter = wait <= 0, wait
		}
	}
	step.Amend = !terminal && !deleting && f.Shadow.DeletionTimestamp == nil && pod.Annotations[labels.ShadowPodRevision] != shadow.Revision(f.Shadow)
	return step
}

// underway returns the phase to record for a pod that has not ended, or after which time to reconcile again. A phase that is recorded is kept true at once.
func underway(f Facts) (vkv1alpha1.ShadowPodPhase, time.Duration) {
	recorded := f.Shadow.Status
	if recorded.PodUID != string(f.Pod.UID) {
		recorded.Phase = "" // of an earlier pod
	}
	phase, delay := present(f.Pod)
	if recorded.Phase == phase {
		return "", 0
	}
	if wait := min(f.Pod.CreationTimestamp.Add(delay).Sub(f.Now), delay); wait > 0 && recorded.Phase == "" {
		return "", wait // never longer than delay: our clock and that of the API server may differ by hours
	}
	return phase, 0
}

// present returns the phase of a pod that has not ended, and how old the pod is before that is recorded; nothing for a phase of a later Kubernetes.
func present(pod *corev1.Pod) (phase vkv1alpha1.ShadowPodPhase, delay time.Duration) {
	switch phase = vkv1alpha1.ShadowPodPhase(pod.Status.Phase); phase {
	case vkv1alpha1.ShadowPodRunning, vkv1alpha1.ShadowPodUnknown:
		return phase, runningDelay
	case vkv1alpha1.ShadowPodPending, "":
		return vkv1alpha1.ShadowPodPending, pendingDelay
	}
	return "", 0
}

// forcedRelease returns whether the pod was deleted without grace period, and how long to wait before its finalizer is removed. A pod
// without a node never ran. The kubelet of any other pod may still report how it ended; if the node is lost, no report comes.
func forcedRelease(f Facts) (wait time.Duration, forced bool) {
	if f.Pod.DeletionGracePeriodSeconds == nil || *f.Pod.DeletionGracePeriodSeconds > 0 {
		return 0, false
	}
	if f.Pod.Spec.NodeName == "" {
		return 0, true
	}
	return max(f.Pod.DeletionTimestamp.Add(kubeletDelay).Sub(f.Now), 0), true
}

// ended reports whether a pod in a terminal phase has ended for good, and whether that is certain: the cache keeps neither reason nor conditions.
func ended(f Facts) (end, sure bool) {
	policy := f.Shadow.Spec.Pod.RestartPolicy
	if endedWithProcesses(policy, f.Pod) {
		return true, true
	}
	return f.Live && Ended(policy, f.Pod), f.Live
}

// finished reports whether the recorded phase is terminal: no pod of this ShadowPod may run again.
func finished(phase vkv1alpha1.ShadowPodPhase) bool { return podphase.Final(phase) }

// Terminal reports whether a pod is in a terminal phase. Whether it has ended for good, only Ended decides.
func Terminal(pod *corev1.Pod) bool { return podphase.Final(pod.Status.Phase) }

func held(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, labels.FinalizerPodEnd) }

// Owner returns the UID of the ShadowPod that a pod was created for; empty if the pod was not created for the ShadowPod of its name. If the
// owner reference was removed, the revision annotation decides.
func Owner(pod *corev1.Pod) string {
	if owner := reference(pod); owner != nil {
		return string(owner.UID)
	}
	if pod.Labels[labels.ManagedBy] != labels.ManagedByShadowPod || metav1.GetControllerOfNoCopy(pod) != nil {
		return ""
	}
	uid, _, _ := strings.Cut(pod.Annotations[labels.ShadowPodRevision], "/")
	return uid
}

// reference is the pod's owner reference to the ShadowPod of its name.
func reference(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != shadow.Kind || owner.Name != pod.Name || !strings.HasPrefix(owner.APIVersion, vkv1alpha1.GroupVersion.Group+"/") {
		return nil
	}
	return owner
}

// Release returns the patch that removes our finalizer from a pod; nil if it has none. Facts that are live are exact: the patch fails if the pod has changed
// since, for example because its kubelet has reported how it ended.
func Release(f Facts) []shadow.Op {
	ops := without(f.Pod, func(finalizer string) bool { return finalizer == labels.FinalizerPodEnd })
	if f.Live && ops != nil {
		ops = append([]shadow.Op{{Op: "test", Path: "/metadata/resourceVersion", Value: f.Pod.ResourceVersion}}, ops...)
	}
	return ops
}

// Free returns the patch that removes from a ShadowPod the finalizers that keep it until its pod is gone; nil if it has none.
func Free(shadow *vkv1alpha1.ShadowPod) []shadow.Op { return without(shadow, keepsName) }

// without removes finalizers, the last one first, so that the places of the others stay.
func without(object metav1.Object, unwanted func(finalizer string) bool) []shadow.Op {
	ops := []shadow.Op{{Op: "test", Path: "/metadata/uid", Value: string(object.GetUID())}}
	for at, finalizer := range slices.Backward(object.GetFinalizers()) {
		if unwanted(finalizer) {
			path := "/metadata/finalizers/" + strconv.Itoa(at)
			ops = append(ops, shadow.Op{Op: "test", Path: path, Value: finalizer}, shadow.Op{Op: "remove", Path: path})
		}
	}
	if len(ops) == 1 {
		return nil
	}
	return ops
}
