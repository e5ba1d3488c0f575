// SPDX-License-Identifier: Apache-2.0

package virtualnode

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/kubelet"
	"liqo.io/liqo/internal/offloading/lifecycle"
	"liqo.io/liqo/internal/offloading/provider"
)

// facts are what the next step of a virtual node depends on.
type facts struct {
	slice *sharingv1alpha1.ResourceSlice
	// node is the virtual node; nil if there is none.
	node *corev1.Node
	// pods are on the node and have to leave before it goes.
	pods []corev1.Pod
	// rights is how many bindings and accounts the virtual kubelet still has. Without them its pods are harmless, so the garbage collector may
	// delete them later.
	rights int
	// cleared: everything that a live list returned has been deleted once.
	cleared bool
	// kubelets are the pods of the virtual kubelet. deployment is its Deployment; nil if there is none.
	kubelets   []corev1.Pod
	deployment *metav1.PartialObjectMetadata
	// namespaces is the NamespaceMap for the provider; nil if there is none.
	namespaces                    *vkv1alpha1.NamespaceMap
	now                           time.Time
	drainDeadline, drainUnreached time.Duration
}

// teardown is the next step to remove a node.
type teardown struct {
	// evict are pods to evict, remove those to delete because their deadline is over.
	evict, remove []corev1.Pod
	// dismantle: no pod needs the node any more; delete it with its kubelet.
	dismantle bool
	// release: the provider's deadline to delete the remote namespaces is over; do not wait for the map.
	release bool
	// done: nothing is left.
	done bool
	// requeueAfter is when to reconcile again at the latest; zero if an event will come.
	requeueAfter time.Duration
}

// mapDeadline is how long the end of a peering waits for the provider to delete the remote namespaces. The rest is deleted with the tenant there.
const mapDeadline = 10 * time.Second

// drainStart returns when the drain started. A condition keeps it, so a restart does not reset it. It is measured by our own clock, because those
// of the provider and the API server may differ.
func (f *facts) drainStart() time.Time {
	if recorded := draining(f.slice); recorded != nil {
		return recorded.LastTransitionTime.Time
	}
	return f.now
}

// young reports whether our rights in the namespace of the slice may not be in effect yet. The API server's clock may be ahead.
func young(slice *sharingv1alpha1.ResourceSlice, now time.Time) bool {
	age := now.Sub(slice.CreationTimestamp.Time)
	return age >= -rightsDelay && age < rightsDelay
}

// cordoned reports whether this controller cordoned the node.
func cordoned(node *corev1.Node) bool {
	return slices.ContainsFunc(node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == labels.OwnerVirtualNode && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" &&
			entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:unschedulable"`))
	})
}

// draining returns the recorded condition if the node was being drained in the last reconciliation; nil otherwise.
func draining(slice *sharingv1alpha1.ResourceSlice) *metav1.Condition {
	recorded := meta.FindStatusCondition(slice.Status.Conditions, sharingv1alpha1.ConditionNodeReady)
	if recorded == nil || recorded.Reason != sharingv1alpha1.ReasonNodeDraining {
		return nil
	}
	return recorded
}

// drainEnd returns when the remaining pods are deleted. The condition of the node decides whether the provider answers.
func (f *facts) drainEnd() time.Time {
	switch {
	case f.slice.Annotations[labels.ForceUnpeer] == "true":
		return f.drainStart()
	case f.node != nil && !provider.NodeReady(f.node):
		return f.drainStart().Add(f.drainUnreached)
	}
	return f.drainStart().Add(f.drainDeadline)
}

// nextTeardown decides the next step.
func nextTeardown(f *facts) teardown {
	if f.node != nil && len(f.pods) > 0 {
		left := f.drainEnd().Sub(f.now)
		if left <= 0 {
			return teardown{remove: f.pods, requeueAfter: 200 * time.Millisecond}
		}
		return teardown{
			evict:        slices.DeleteFunc(slices.Clone(f.pods), func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }),
			requeueAfter: min(left, time.Second),
		}
	}
	if f.node != nil || f.deployment != nil || f.rights > 0 || !f.cleared || f.namespaces != nil && f.namespaces.DeletionTimestamp == nil {
		return teardown{dismantle: true, requeueAfter: 100 * time.Millisecond}
	}
	if f.namespaces != nil {
		left := f.namespaces.DeletionTimestamp.Add(mapDeadline).Sub(f.now)
		if f.slice.Annotations[labels.ForceUnpeer] == "true" || left <= 0 {
			return teardown{release: f.namespaces.Annotations[labels.ForceUnpeer] != "true", requeueAfter: 100 * time.Millisecond}
		}
		return teardown{requeueAfter: left}
	}
	return teardown{done: true}
}

// mustLeave reports whether a pod holds up a drain. Pods of DaemonSets are created again while the node exists, mirror pods cannot be deleted
// through the API server, and a pod whose grace period is 0 is held by a finalizer, not by the node. A pod that ended because it is being deleted still
// needs its node: only the virtual kubelet completes the deletion at once. Without the node, Kubernetes takes 40 s or more, while a StatefulSet has no
// replacement and a namespace stays Terminating.
func mustLeave(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	if lifecycle.Terminal(pod) && pod.DeletionTimestamp == nil {
		return false
	}
	if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0 {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	return owner == nil || owner.Kind != "DaemonSet"
}

// nodeCondition returns the condition that reports the node in the slice.
func nodeCondition(f *facts) metav1.Condition {
	condition := metav1.Condition{
		Type: sharingv1alpha1.ConditionNodeReady, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(f.now).Rfc3339Copy(),
	}
	condition.Reason, condition.Message = sharingv1alpha1.ReasonNodeNotReady, "the node is not Ready"
	switch {
	case !provider.Wanted(f.slice):
		condition.Reason, condition.Message = sharingv1alpha1.ReasonNodeDraining, drainMessage(f)
	case f.node == nil:
		condition.Reason = sharingv1alpha1.ReasonVirtualKubeletStarting
		condition.Message = fmt.Sprintf("the virtual kubelet is deployed and has not registered node %s yet; if this lasts, see: kubectl -n %s "+
			"describe pods -l %s=%s",
			f.slice.Spec.NodeName, f.slice.Namespace, labels.AppName, kubelet.Name)
	case provider.NodeReady(f.node):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, sharingv1alpha1.ReasonNodeReady, "the node is Ready"
	default:
		for _, recorded := range f.node.Status.Conditions {
			if recorded.Type == corev1.NodeReady && recorded.Message != "" {
				condition.Message = recorded.Message
			}
		}
	}
	// A new reason with the same status keeps the time, except for the start of a drain.
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
