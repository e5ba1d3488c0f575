// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/foreign"
)

// overlapHint returns what it costs that pods of both clusters have the same addresses, and how to get others: nothing if they do not. It is pure.
func overlapHint(tunnel *netv1alpha1.TunnelEndpointSpec) []string {
	local, here := netip.ParsePrefix(string(tunnel.LocalPodCIDR))
	remote, there := netip.ParsePrefix(string(tunnel.RemotePodCIDR))
	if here != nil || there != nil || !local.Overlaps(remote) {
		return nil
	}
	both := local.String()
	if local != remote {
		both += " and " + remote.String()
	}
	return []string{
		fmt.Sprintf("The pod networks of the two clusters overlap (%s). Names of Services and pods mean the same in both, and Services reach their pods; but "+
			"a program in the other cluster "+
			"that connects to addresses which it reads from the API, or which its peers report (MariaDB Galera, Prometheus, ingress controllers), may reach "+
			"another pod", both),
		"Such programs need clusters whose pod networks do not overlap, which is chosen when a cluster is made, and that keep each other's networks: `liqoctl " +
			"peer --keep-networks`, " +
			"or the value networkManager.config.unmappedNetworks, in both",
	}
}

// HintOverlap reports what overlapping networks cost. The peering needs none of it, so what cannot be read is no error.
func HintOverlap(ctx context.Context, c client.Client, name string, p action.Progress) {
	fc, err := foreign.Get(ctx, c, name)
	if err != nil || foreign.IdentityOf(fc) == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, await.CallTimeout)
	defer cancel()
	var tunnels netv1alpha1.TunnelEndpointList
	if foreign.Condition(fc, discoveryv1alpha1.NetworkStatus).Status == discoveryv1alpha1.StatusExternal || c.List(ctx, &tunnels) != nil {
		return
	}
	i := slices.IndexFunc(tunnels.Items, func(one netv1alpha1.TunnelEndpoint) bool {
		return one.Spec.ClusterIdentity.ClusterID == foreign.IdentityOf(fc)
	})
	if i < 0 {
		return
	}
	for _, line := range overlapHint(&tunnels.Items[i].Spec) {
		p.Info(line)
	}
}
