// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// facts are what the next step of a virtual node depends on.
type facts struct {
	slice *sharingv1alpha1.ResourceSlice
	// node is the virtual node, nil if there is none.
	node *corev1.Node
	// pods are on the node and have to leave before it goes.
	pods []corev1.Pod
	// kubelets is how many pods of the virtual kubelet exist.
	kubelets int
	// deployed: its Deployment exists.
	deployed                      bool
	now                           time.Time
	drainDeadline, drainUnreached time.Duration
}

// wanted tells whether the slice should have a node. The virtual kubelet applies the same rule.
func wanted(slice *sharingv1alpha1.ResourceSlice) bool {
	return slice.DeletionTimestamp == nil && slice.Status.Phase != sharingv1alpha1.SliceRefused
}

// teardown is what to do next on the way to no node.
type teardown struct {
	// evict are pods to be asked to leave, remove are those that had their time.
	evict, remove []corev1.Pod
	// dismantle: nothing needs the node any more; it and its kubelet are taken away.
	dismantle bool
	// done: nothing is left.
	done bool
	// again is when to look again at the latest; zero if an event will come.
	again time.Duration
}

// drainStart is when the pods' time began: kept in objects, so that a restart does not begin it anew.
func (f *facts) drainStart() time.Time {
	if f.slice.DeletionTimestamp != nil {
		return f.slice.DeletionTimestamp.Time
	}
	for _, condition := range f.slice.Status.Conditions {
		if condition.Type == sharingv1alpha1.ConditionGranted && condition.Status == metav1.ConditionFalse {
			return condition.LastTransitionTime.Time
		}
	}
	return f.now
}

// deadline is how long pods may take to leave.
func (f *facts) deadline() time.Duration {
	if f.slice.Annotations[labels.ForceUnpeer] == "true" {
		return 0
	}
	if f.node != nil && !nodeReady(f.node) {
		return f.drainUnreached
	}
	return f.drainDeadline
}

// nextTeardown decides what to do next.
func nextTeardown(f *facts) teardown {
	if f.node != nil && len(f.pods) > 0 {
		left := f.drainStart().Add(f.deadline()).Sub(f.now)
		if left <= 0 {
			return teardown{remove: f.pods, again: 200 * time.Millisecond}
		}
		return teardown{
			evict: slices.DeleteFunc(slices.Clone(f.pods), func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }),
			again: min(left, time.Second),
		}
	}
	if f.node != nil || f.deployed || f.kubelets > 0 {
		return teardown{dismantle: true, again: 100 * time.Millisecond}
	}
	return teardown{done: true}
}

// mustLeave tells whether a pod holds up a drain. Pods of DaemonSets come back as long as the node is there, and mirror pods
// are not the API server's to delete.
func mustLeave(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	return owner == nil || owner.Kind != "DaemonSet"
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// nodeCondition is what the slice says of its node, without its time.
func nodeCondition(f *facts) metav1.Condition {
	condition := metav1.Condition{Type: sharingv1alpha1.ConditionNodeReady, Status: metav1.ConditionFalse}
	switch {
	case !wanted(f.slice):
		condition.Reason, condition.Message = sharingv1alpha1.ReasonNodeDraining, "the node is being drained and removed"
		if f.node == nil && !f.deployed && f.kubelets == 0 {
			condition.Message = "the node was removed, because the provider no longer shares with this cluster"
		}
	case f.node == nil:
		condition.Reason, condition.Message = sharingv1alpha1.ReasonVirtualKubeletStarting, "the virtual kubelet is deployed and has not registered the node yet"
	case nodeReady(f.node):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, sharingv1alpha1.ReasonNodeReady, "the node is Ready"
	default:
		condition.Reason, condition.Message = sharingv1alpha1.ReasonNodeNotReady, "the node is not Ready"
		for _, said := range f.node.Status.Conditions {
			if said.Type == corev1.NodeReady && said.Message != "" {
				condition.Message = said.Message
			}
		}
	}
	return condition
}
