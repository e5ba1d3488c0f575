// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"liqo.io/liqo/apis/labels"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

// wanted reports whether the slice should have a node. The virtual kubelet applies the same rule.
func wanted(slice *sharingv1alpha1.ResourceSlice) bool {
	return slice.DeletionTimestamp == nil && slice.Status.Phase != sharingv1alpha1.SliceRefused
}

// served returns which slice of a tenant namespace has the virtual kubelet. There is one per peer, because its objects are named after the
// peer. The slice that has it keeps it.
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

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// nodeChanged passes updates of virtual nodes that change labels, readiness, or whether the labels are known.
var nodeChanged = predicate.And(
	predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[labels.Type] == labels.TypeVirtualNode }),
	predicate.Or(predicate.LabelChangedPredicate{}, predicate.Funcs{UpdateFunc: func(change event.UpdateEvent) bool {
		before, was := change.ObjectOld.(*corev1.Node)
		after, is := change.ObjectNew.(*corev1.Node)
		return !was || !is || nodeReady(before) != nodeReady(after) || len(before.Status.Conditions) != len(after.Status.Conditions) ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
	}}),
)
