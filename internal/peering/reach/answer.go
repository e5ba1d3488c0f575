// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"slices"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
)

// WantsProxy reports whether a consumer is to open its proxy to this cluster, its provider: this one is to use it, and does not reach it directly, or goes
// through the tunnel already.
func WantsProxy(fc *discoveryv1alpha1.ForeignCluster) bool {
	if fc == nil || fc.Labels[labels.DiscoveryType] != labels.DiscoveryIncoming || fc.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringYes {
		return false
	}
	return fc.Inside() || slices.ContainsFunc(fc.Status.PeeringConditions, func(c discoveryv1alpha1.PeeringCondition) bool {
		return c.Reason == discoveryv1alpha1.ReasonAuthNotReachable ||
			c.Reason == discoveryv1alpha1.ReasonAPIServerNotReady && c.Status == discoveryv1alpha1.StatusError
	})
}

// TunnelFirst reports whether everything, also the first contact, waits for the tunnel to a cluster: in-band, unless its provider has invited this cluster.
func TunnelFirst(fc *discoveryv1alpha1.ForeignCluster) bool {
	return fc.InBand() && fc.Annotations[labels.Invited] == ""
}
