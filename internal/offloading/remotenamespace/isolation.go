// SPDX-License-Identifier: Apache-2.0

package remotenamespace

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingapply "k8s.io/client-go/applyconfigurations/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/offloading/isolation"
	"liqo.io/liqo/internal/offloading/networks"
	"liqo.io/liqo/internal/offloading/peers"
)

// Isolation is how the pods of peers are kept from the network of this cluster.
type Isolation struct {
	isolation.Options
	// InternalNetwork: networks are agreed with peers. Otherwise they are those in their ForeignClusters.
	InternalNetwork bool
	// OwnNetworks are those of this cluster's pods and Services, as far as they are known; Services are those of Services alone.
	OwnNetworks, Services []netip.Prefix
}

// watch follows what the policies are made of. A network of one peer is an exception in the policies of all others.
func (i *Isolation) watch(controller *builder.Builder, everyone handler.EventHandler) {
	if !i.Enabled {
		return
	}
	controller.Watches(&corev1.Node{}, everyone, builder.WithPredicates(networks.OtherAddresses))
	if i.InternalNetwork {
		controller.Watches(&netv1alpha1.TunnelEndpoint{}, everyone, builder.WithPredicates(networks.OtherTunnels))
	} else {
		controller.Watches(&discoveryv1alpha1.ForeignCluster{}, everyone, builder.WithPredicates(otherExternalNetworks))
	}
}

// otherExternalNetworks passes updates of the networks that the administrator wrote down.
var otherExternalNetworks = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*discoveryv1alpha1.ForeignCluster)
	now, isNew := e.ObjectNew.(*discoveryv1alpha1.ForeignCluster)
	return ok && isNew && (peers.ClusterID(before) != peers.ClusterID(now) || !slices.Equal(before.PodCIDRs(), now.PodCIDRs()))
}}

// isolation returns the specification of the policies of a consumer, nil for none.
func (r *reconciler) isolation(ctx context.Context, consumer string) (*networkingapply.NetworkPolicySpecApplyConfiguration, error) {
	o := &r.options.Isolation
	if !o.Enabled {
		return nil, nil
	}
	own, err := networks.Read(ctx, r.client, o.OwnNetworks)
	if err != nil {
		return nil, err
	}
	found := isolation.Networks{Own: own, Services: o.Services}
	add := func(clusterID string, reached []netip.Prefix) {
		if clusterID == consumer {
			found.Peer = append(found.Peer, reached...)
		} else {
			found.Others = append(found.Others, reached...)
		}
	}
	if !o.InternalNetwork {
		var all discoveryv1alpha1.ForeignClusterList
		if err := r.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list foreign clusters: %w", err)
		}
		for i := range all.Items {
			add(peers.ClusterID(&all.Items[i]), networks.External(&all.Items[i], own))
		}
		return isolation.Policy(o.Options, consumer, found), nil
	}
	var tunnels netv1alpha1.TunnelEndpointList
	if err := r.client.List(ctx, &tunnels, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list tunnel endpoints: %w", err)
	}
	for i := range tunnels.Items {
		add(tunnels.Items[i].Spec.ClusterIdentity.ClusterID, networks.OfTunnel(&tunnels.Items[i]))
	}
	return isolation.Policy(o.Options, consumer, found), nil
}
