// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/pools"
	"liqo.io/liqo/internal/network/reach"
)

// conflicts states which networks of the peer nodes reach without it, what follows from that, and what to do; empty if there is no conflict.
func conflicts(w pools.Words, namespace string, spec *netv1alpha1.TunnelEndpointSpec, reached []ipam.Use) string {
	pools, peer := ipam.Pools{Reached: reached}, "its ForeignCluster"
	if fc := w.Peer(namespace); fc != nil {
		peer = "ForeignCluster " + fc.Name
	}
	var texts []string
	for _, one := range networksOf(spec) {
		word, wanted, here := w.About(namespace, one.own), pools.Reaches(one.own), pools.Reaches(one.here)
		switch {
		case one.own == one.here && len(here) > 0 && word != ipam.Forced:
			texts = append(texts, fmt.Sprintf("%s leads to the peer, and nodes of this cluster reach %s since; remove that from the nodes, or, if it "+
				"is to lead to the peer, list it in spec.network.forcedCIDRs of %s",
				one.here, reach.Describe(here), peer))
		case one.own != one.here && len(here) > 0:
			texts = append(texts, fmt.Sprintf("%s leads to the peer, and nodes of this cluster reach %s since; remove that from the nodes, or end "+
				"the peering and peer again to get another network",
				one.here, reach.Describe(here)))
		case one.own != one.here && len(wanted) > 0 && word == ipam.Written:
			texts = append(texts, fmt.Sprintf("%s of the peer is remapped to %s, because nodes of this cluster reach %s; to lead it to the peer "+
				"nevertheless, list it in spec.network.forcedCIDRs of %s",
				one.own, one.here, reach.Describe(wanted), peer))
		}
	}
	return strings.Join(texts, "; ")
}

// conflict states the conflicts of one peer. A reconciliation that decided about the claim has the networks that nodes reach.
func (r *reconciler) conflict(ctx context.Context, s *scope, nodes []corev1.Node) (string, error) {
	if !s.assessed {
		reports, err := r.Pools.NodeReports(ctx)
		if err != nil {
			return "", err
		}
		s.reached = reach.Reported(reports, nodes, r.Pools.Options.OwnNetworks())
	}
	return conflicts(r.Pools.WordsFor(&s.Tenant), s.Namespace, &s.tunnel.Spec, s.reached), nil
}

// recordConflict records an event at the ForeignCluster when other networks than before are in conflict.
func (r *reconciler) recordConflict(s *scope, status *netv1alpha1.TunnelEndpointStatus) {
	now := meta.FindStatusCondition(status.Conditions, netv1alpha1.ConditionNetworksFree)
	before := meta.FindStatusCondition(s.tunnel.Status.Conditions, netv1alpha1.ConditionNetworksFree)
	if now != nil && now.Status == metav1.ConditionFalse && (before == nil || before.Message != now.Message) && s.FC != nil {
		r.events.Eventf(s.FC, nil, corev1.EventTypeWarning, netv1alpha1.ReasonNetworkOverlapsNode, "AgreeNetwork", "%s", now.Message)
	}
}
