// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
)

// facts are what the next step of a virtual node depends on.
type facts struct {
	slice *sharingv1alpha1.ResourceSlice
	// node is the virtual node, nil if there is none.
	node *corev1.Node
	// pods are on the node and have to leave before it goes.
	pods []corev1.Pod
	// rights is how many bindings and accounts the virtual kubelet still has. Without them its pods can do nothing any more, and
	// the garbage collector may take its time to come for them.
	rights int
	// swept: all that there was has been deleted once, with the API server's word for what that is.
	swept bool
	// kubelets are the pods of the virtual kubelet, deployment is what makes them; nil if there is none.
	kubelets   []corev1.Pod
	deployment *metav1.PartialObjectMetadata
	// namespaces is what the provider is asked for, nil for nothing.
	namespaces                    *vkv1alpha1.NamespaceMap
	now                           time.Time
	drainDeadline, drainUnreached time.Duration
}

// wanted tells whether the slice should have a node. The virtual kubelet applies the same rule.
func wanted(slice *sharingv1alpha1.ResourceSlice) bool {
	return slice.DeletionTimestamp == nil && slice.Status.Phase != sharingv1alpha1.SliceRefused
}

// served is which of the slices of a tenant namespace has the virtual kubelet: the names of what we make are those of the
// peer, so there is one. It stays with the slice that has it.
func served(all []sharingv1alpha1.ResourceSlice) *sharingv1alpha1.ResourceSlice {
	if len(all) == 0 {
		return nil
	}
	without := func(slice *sharingv1alpha1.ResourceSlice) int {
		if slices.Contains(slice.Finalizers, labels.FinalizerNode) {
			return 0
		}
		return 1
	}
	first := slices.MinFunc(all, func(a, b sharingv1alpha1.ResourceSlice) int {
		if one, other := without(&a), without(&b); one != other {
			return one - other
		}
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	return &first
}

// teardown is what to do next on the way to no node.
type teardown struct {
	// evict are pods to be asked to leave, remove are those that had their time.
	evict, remove []corev1.Pod
	// dismantle: nothing needs the node any more; it and its kubelet are taken away.
	dismantle bool
	// release: the provider had its time to delete the twins; their map is not waited for.
	release bool
	// done: nothing is left.
	done bool
	// again is when to look again at the latest; zero if an event will come.
	again time.Duration
}

// mapTime is how long the end of a peering waits for the provider to take the twins away; what is left of them ends with the tenant there.
const mapTime = 10 * time.Second

// drainStart is when the pods' time began. It is kept in objects, so that a restart does not begin it anew, and by our own
// clock: the provider's and the API server's may be ahead or behind.
func (f *facts) drainStart() time.Time {
	if said := draining(f.slice); said != nil {
		return said.LastTransitionTime.Time
	}
	return f.now
}

// young tells whether our rights in the slice's namespace may not be known everywhere yet. The API server's clock may be ahead.
func young(slice *sharingv1alpha1.ResourceSlice, now time.Time) bool {
	age := now.Sub(slice.CreationTimestamp.Time)
	return age >= -rightsDelay && age < rightsDelay
}

// cordoned tells whether it was us who cordoned the node.
func cordoned(node *corev1.Node) bool {
	return slices.ContainsFunc(node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == labels.OwnerVirtualNode && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" &&
			entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:unschedulable"`))
	})
}

// draining is what the slice says if its node was being drained the last time we looked.
func draining(slice *sharingv1alpha1.ResourceSlice) *metav1.Condition {
	said := meta.FindStatusCondition(slice.Status.Conditions, sharingv1alpha1.ConditionNodeReady)
	if said == nil || said.Reason != sharingv1alpha1.ReasonNodeDraining {
		return nil
	}
	return said
}

// drainEnd is when pods that are still there are deleted. Whether the provider answers is what the node says.
func (f *facts) drainEnd() time.Time {
	switch {
	case f.slice.Annotations[labels.ForceUnpeer] == "true":
		return f.drainStart()
	case f.node != nil && !nodeReady(f.node):
		return f.drainStart().Add(f.drainUnreached)
	}
	return f.drainStart().Add(f.drainDeadline)
}

// nextTeardown decides what to do next.
func nextTeardown(f *facts) teardown {
	if f.node != nil && len(f.pods) > 0 {
		left := f.drainEnd().Sub(f.now)
		if left <= 0 {
			return teardown{remove: f.pods, again: 200 * time.Millisecond}
		}
		return teardown{
			evict: slices.DeleteFunc(slices.Clone(f.pods), func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }),
			again: min(left, time.Second),
		}
	}
	if f.node != nil || f.deployment != nil || f.rights > 0 || !f.swept || f.namespaces != nil && f.namespaces.DeletionTimestamp == nil {
		return teardown{dismantle: true, again: 100 * time.Millisecond}
	}
	if f.namespaces != nil {
		left := f.namespaces.DeletionTimestamp.Add(mapTime).Sub(f.now)
		if f.slice.Annotations[labels.ForceUnpeer] == "true" || left <= 0 {
			return teardown{release: f.namespaces.Annotations[labels.ForceUnpeer] != "true", again: 100 * time.Millisecond}
		}
		return teardown{again: left}
	}
	return teardown{done: true}
}

// mustLeave tells whether a pod holds up a drain. Pods of DaemonSets come back as long as the node is there, mirror pods
// are not the API server's to delete, and a pod without any time left is held by a finalizer, not by the node.
func mustLeave(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
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

// nodeCondition is what the slice says of its node, with the time since when.
func nodeCondition(f *facts) metav1.Condition {
	condition := metav1.Condition{
		Type: sharingv1alpha1.ConditionNodeReady, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(f.now).Rfc3339Copy(),
	}
	condition.Reason, condition.Message = sharingv1alpha1.ReasonNodeNotReady, "the node is not Ready"
	switch {
	case !wanted(f.slice):
		condition.Reason, condition.Message = sharingv1alpha1.ReasonNodeDraining, drainMessage(f)
	case f.node == nil:
		condition.Reason = sharingv1alpha1.ReasonVirtualKubeletStarting
		condition.Message = fmt.Sprintf("the virtual kubelet is deployed and has not registered node %s yet; if this lasts, see: kubectl -n %s describe pods -l %s=%s",
			f.slice.Spec.NodeName, f.slice.Namespace, labels.AppName, kubeletName)
	case nodeReady(f.node):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, sharingv1alpha1.ReasonNodeReady, "the node is Ready"
	default:
		for _, said := range f.node.Status.Conditions {
			if said.Type == corev1.NodeReady && said.Message != "" {
				condition.Message = said.Message
			}
		}
	}
	// Why may change without the status doing so; but a drain begins when it begins.
	if before := meta.FindStatusCondition(f.slice.Status.Conditions, condition.Type); before != nil && before.Status == condition.Status &&
		(condition.Reason != sharingv1alpha1.ReasonNodeDraining || before.Reason == condition.Reason) {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	return condition
}

func drainMessage(f *facts) string {
	switch {
	case len(f.pods) > 0:
		return fmt.Sprintf("the node waits for %d pods to leave; those still there at %s are deleted", len(f.pods), f.drainEnd().UTC().Format(time.RFC3339))
	case f.node == nil && f.deployment == nil && len(f.kubelets) == 0:
		return "the node was removed, because the provider no longer shares with this cluster"
	}
	return "the node is being removed"
}
