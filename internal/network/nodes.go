// SPDX-License-Identifier: Apache-2.0

package network

import (
	corev1 "k8s.io/api/core/v1"

	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"liqo.io/liqo/apis/labels"
)

// nodeChanged passes changes of nodes that matter here; heartbeats do not.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		now, ok2 := e.ObjectNew.(*corev1.Node)
		return !ok || !ok2 || isReady(before) != isReady(now) || isVirtual(before) != isVirtual(now) ||
			before.Spec.Unschedulable != now.Spec.Unschedulable ||
			!slices.Equal(before.Status.Addresses, now.Status.Addresses)
	}}
}

// realNodes returns the real nodes of this cluster.
func realNodes(ctx context.Context, from client.Reader) ([]corev1.Node, error) {
	var all corev1.NodeList
	if err := from.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(all.Items), func(node corev1.Node) bool { return isVirtual(&node) }), nil
}

func isVirtual(node *corev1.Node) bool { return node.Labels[labels.Type] == labels.TypeVirtualNode }

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
