// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// Read returns the networks of this cluster with the addresses of its real nodes.
func Read(ctx context.Context, cached client.Reader, configured []netip.Prefix) ([]netip.Prefix, error) {
	var nodes corev1.NodeList
	if err := cached.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	real := make([]corev1.Node, 0, len(nodes.Items))
	for i := range nodes.Items {
		if nodes.Items[i].Labels[labels.Type] != labels.TypeVirtualNode {
			real = append(real, nodes.Items[i])
		}
	}
	return Own(configured, real), nil
}

// OtherTunnels passes updates that may change which addresses are accepted.
var OtherTunnels = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*netv1alpha1.TunnelEndpoint)
	now, isNew := e.ObjectNew.(*netv1alpha1.TunnelEndpoint)
	return ok && isNew && (!slices.Equal(OfTunnel(before), OfTunnel(now)) || before.Spec.ClusterIdentity != now.Spec.ClusterIdentity)
}}

// OtherAddresses passes what changes the addresses of real nodes: their statuses change every few seconds.
var OtherAddresses = predicate.And(
	predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[labels.Type] != labels.TypeVirtualNode }),
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		now, isNew := e.ObjectNew.(*corev1.Node)
		return ok && isNew && !slices.Equal(Own(nil, []corev1.Node{*before}), Own(nil, []corev1.Node{*now}))
	}},
)
