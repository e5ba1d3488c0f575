// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"

	"liqo.io/liqo/apis/labels"
)

// pendingTold is how long a pod may be pending before that is written down. Most run by then, and one write tells all.
const pendingTold = 30 * time.Second

// kubeletsWord is how long a kubelet may take to say how a pod ended that somebody deleted without grace.
const kubeletsWord = 30 * time.Second

// Facts are what the next step of one ShadowPod depends on.
type Facts struct {
	// Shadow is the wish, Pod what has its name; nil if there is none. What a cache has trimmed may be missing: of the
	// pod, all but metadata of ours and the phase; of the wish, what cannot change.
	Shadow *vkv1alpha1.ShadowPod
	Pod    *corev1.Pod
	// Live: the API server itself was asked, for the pod first and then for the wish. In that order a wish with another
	// UID than the pod's proves that the pod's is gone for good. A pod that no cache knows need not be asked for: to create it
	// fails if it is there.
	Live bool
	Now  time.Time
}

// Step is what to do, in the order of the fields.
type Step struct {
	// Look: decide again with live facts. Nothing else is set.
	NeedsLive bool
	// Stranger: the name is taken by a pod that is not ours. Leave it alone.
	Unmanaged bool
	// Delete the pod, whose ShadowPod is gone.
	Delete bool
	// Phase is to be written down, with the pod's UID; empty if nothing is.
	Phase vkv1alpha1.ShadowPodPhase
	// Release: take our finalizer from the pod. What is to be written down must be written before.
	Release bool
	// Create the pod.
	Create bool
	// Amend the pod: metadata, or what can change in a spec, is not as wished.
	Amend bool
	// Again is when to look again at the latest; zero if an event will come.
	RequeueAfter time.Duration
}

// Plan decides. The rules:
//   - a pod is made only if the API server says that the wish is there, is not being deleted, and has not ended;
//   - what has ended never runs again; ended tells what that is;
//   - a pod that is not of this very wish is never touched, unless its own wish is gone for good.
func Plan(f Facts) Step {
	switch {
	case f.Pod == nil:
		return planAbsent(f)
	case Owner(f.Pod) == "":
		return Step{Unmanaged: f.Shadow != nil}
	case f.Shadow == nil:
		return planWidowed(f)
	case Owner(f.Pod) != string(f.Shadow.UID):
		return planOutlived(f)
	default:
		return planPresent(f)
	}
}

func planAbsent(f Facts) Step {
	if f.Shadow == nil || f.Shadow.DeletionTimestamp != nil || finished(f.Shadow.Status.Phase) {
		return Step{}
	}
	return Step{NeedsLive: !f.Live, Create: f.Live}
}

// planWidowed is for a pod whose name no ShadowPod has. The garbage collector deletes it, unless somebody took it from its owner.
func planWidowed(f Facts) Step {
	release, remove := f.Pod.DeletionTimestamp != nil && held(f.Pod), f.Pod.DeletionTimestamp == nil && reference(f.Pod) == nil
	if !release && !remove {
		return Step{}
	}
	return Step{NeedsLive: !f.Live, Release: f.Live && release, Delete: f.Live && remove}
}

// planOutlived is for a pod of an earlier ShadowPod of the same name. The new one waits for it to go.
func planOutlived(f Facts) Step {
	if !f.Live {
		return Step{NeedsLive: true}
	}
	deleting := f.Pod.DeletionTimestamp != nil
	return Step{Delete: !deleting, Release: deleting && held(f.Pod)}
}

func planPresent(f Facts) Step {
	var step Step
	pod, recorded, deleting := f.Pod, finished(f.Shadow.Status.Phase), f.Pod.DeletionTimestamp != nil
	terminal := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
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
	}
	if deleting && held(pod) {
		step.Release = terminal || recorded || f.Shadow.DeletionTimestamp != nil
		if wait, forced := forsaken(f); forced && !step.Release {
			step.Release, step.RequeueAfter = wait <= 0, wait
		}
	}
	step.Amend = !terminal && !deleting && f.Shadow.DeletionTimestamp == nil && pod.Annotations[labels.ShadowPodRevision] != Revision(f.Shadow)
	return step
}

// underway is what to tell of a pod that has not ended.
func underway(f Facts) (vkv1alpha1.ShadowPodPhase, time.Duration) {
	told := f.Shadow.Status
	if told.PodUID != string(f.Pod.UID) {
		told.Phase = "" // that was an earlier one
	}
	phase := vkv1alpha1.ShadowPodPhase(f.Pod.Status.Phase)
	switch phase {
	case vkv1alpha1.ShadowPodRunning, vkv1alpha1.ShadowPodUnknown:
	case vkv1alpha1.ShadowPodPending, "":
		phase = vkv1alpha1.ShadowPodPending
		if wait := f.Pod.CreationTimestamp.Add(pendingTold).Sub(f.Now); wait > 0 && told.Phase != phase {
			return "", wait
		}
	default:
		return "", 0 // of a later Kubernetes
	}
	if told.Phase == phase {
		return "", 0
	}
	return phase, 0
}

// forsaken tells how long a pod that is deleted without grace is waited for. One that was on no node never ran; the kubelet of any other
// may still say how it ended, unless somebody gave it up with its node.
func forsaken(f Facts) (wait time.Duration, forced bool) {
	if f.Pod.DeletionGracePeriodSeconds == nil || *f.Pod.DeletionGracePeriodSeconds > 0 {
		return 0, false
	}
	if f.Pod.Spec.NodeName == "" {
		return 0, true
	}
	return max(f.Pod.DeletionTimestamp.Add(kubeletsWord).Sub(f.Now), 0), true
}

// ended tells whether a pod in a terminal phase has ended for good, and whether that is certain.
//
// Kubernetes gives a terminal phase also to a pod that is being deleted, even to one that would restart for ever, so the phase alone
// says little. A pod that is never to be restarted has ended with its processes, and so has one that has succeeded
// where only failures are restarted. Any other has ended if its kubelet gave it up and says why: eviction, deadline, no room. If it was
// deleted, or its node is gone, it is made again.
func ended(f Facts) (end, sure bool) {
	status := &f.Pod.Status
	switch policy := f.Shadow.Spec.Pod.RestartPolicy; {
	case policy == corev1.RestartPolicyNever:
		return true, true
	case policy == corev1.RestartPolicyOnFailure && status.Phase == corev1.PodSucceeded:
		return true, true
	case !f.Live:
		return false, false // no cache has reason and conditions
	case f.Pod.DeletionTimestamp != nil && status.Reason == "":
		return false, true
	}
	return !slices.ContainsFunc(status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue && condition.Reason != corev1.PodReasonTerminationByKubelet
	}), true
}

// finished: nothing that the phase is said of may ever run again.
func finished(phase vkv1alpha1.ShadowPodPhase) bool {
	return phase == vkv1alpha1.ShadowPodSucceeded || phase == vkv1alpha1.ShadowPodFailed
}

func held(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, labels.FinalizerPodEnd) }

// Owner is the UID of the ShadowPod that a pod was made for; empty if it was not made for the one of its name. The mark
// speaks if somebody has taken the reference away.
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
	if owner == nil || owner.Kind != kind || owner.Name != pod.Name || !strings.HasPrefix(owner.APIVersion, vkv1alpha1.GroupVersion.Group+"/") {
		return nil
	}
	return owner
}
