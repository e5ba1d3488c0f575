// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// A provider that answers and takes no further pods, because its nodes are cordoned or full or because it shares nothing, is a node in maintenance: it
// stays Ready, its pods stay, and a taint keeps new ones away. Of the ways to report that, spec.unschedulable belongs to the administrator who runs
// kubectl cordon here, and a condition with pressure raises alarms about what is no fault. The scheduler names the taint in the event of each pod
// that waits.

// closure is why a provider takes no further pods; empty if it takes them.
type closure struct {
	reason  string // the value of the taint
	message string
}

// Values of the taint.
const (
	closedNothing    = "NothingGranted"
	closedUnanswered = "NoAnswer"
)

// closedBy returns why the provider takes no further pods, by the slice.
func closedBy(slice *sharingv1alpha1.ResourceSlice) closure {
	if unanswered(slice) {
		return closure{closedUnanswered, "it has not answered yet what it grants, so the node keeps its pods and takes no further ones"}
	}
	granted := slice.Status.Resources
	pods, bounded := granted[corev1.ResourcePods]
	condition := meta.FindStatusCondition(slice.Status.Conditions, sharingv1alpha1.ConditionGranted)
	switch {
	case condition != nil && condition.Reason == sharingv1alpha1.ReasonNothingToShare,
		granted.Cpu().Sign() <= 0, granted.Memory().Sign() <= 0, bounded && pods.Sign() <= 0:
		return closure{closedNothing, "it takes no further pods, see the ResourceSlice of this node; running ones stay"}
	}
	return closure{}
}

func (c closure) taint() corev1.Taint {
	return corev1.Taint{Key: labels.TaintNoNewPods, Value: c.reason, Effect: corev1.TaintEffectNoSchedule}
}

// initialTaints returns the taints of a new node.
func (p *nodeInputs) initialTaints() *coreapply.NodeSpecApplyConfiguration {
	spec := coreapply.NodeSpec().WithTaints(coreapply.Taint().WithKey(labels.TaintVirtualNode).WithValue("true").WithEffect(corev1.TaintEffectNoExecute))
	if p.closed.reason != "" {
		spec.WithTaints(coreapply.Taint().WithKey(labels.TaintNoNewPods).WithValue(p.closed.reason).WithEffect(corev1.TaintEffectNoSchedule))
	}
	return spec
}

// taints returns the taints of the node with ours as it should be, and whether that is a change. The other taints belong to others.
func (c closure) taints(live []corev1.Taint) (wanted []corev1.Taint, changed bool) {
	ours := func(taint corev1.Taint) bool { return taint.Key == labels.TaintNoNewPods }
	wanted = slices.DeleteFunc(slices.Clone(live), ours)
	if c.reason == "" {
		return wanted, len(wanted) < len(live)
	}
	at := slices.IndexFunc(live, ours)
	current := at >= 0 && len(wanted) == len(live)-1 && live[at].Value == c.reason && live[at].Effect == corev1.TaintEffectNoSchedule
	return append(wanted, c.taint()), !current
}
