// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/nodeready"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch

// Changed passes changes of nodes that matter here; heartbeats do not.
func Changed() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		now, ok2 := e.ObjectNew.(*corev1.Node)
		return !ok || !ok2 || IsReady(before) != IsReady(now) || IsVirtual(before) != IsVirtual(now) ||
			before.Spec.Unschedulable != now.Spec.Unschedulable ||
			!slices.Equal(before.Status.Addresses, now.Status.Addresses)
	}}
}

func Real(ctx context.Context, from client.Reader) ([]corev1.Node, error) {
	var all corev1.NodeList
	if err := from.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(all.Items), func(node corev1.Node) bool { return IsVirtual(&node) }), nil
}

func IsVirtual(node *corev1.Node) bool { return node.Labels[labels.Type] == labels.TypeVirtualNode }

func IsReady(node *corev1.Node) bool {
	return nodeready.Is(node.Status.Conditions)
}
