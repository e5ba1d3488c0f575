// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	"liqo.io/liqo/internal/kube/ending"
)

// step is what to do now, and what to wait for.
type step struct {
	stop    []discoveryv1alpha1.ForeignCluster // whose peerings have to end
	remove  []discoveryv1alpha1.ForeignCluster
	waiting []string // one sentence each
}

func (s step) done() bool { return len(s.stop)+len(s.remove)+len(s.waiting) == 0 }

// next decides from what is left. It removes a ForeignCluster only when its controller has reported, for the current
// generation, that both directions ended: removing it earlier would hide from the log why a direction does not end.
func next(peers []discoveryv1alpha1.ForeignCluster, tenants []corev1.Namespace, tunnels []netv1alpha1.TunnelEndpoint) (s step) {
	for _, peer := range peers {
		switch {
		case peer.DeletionTimestamp != nil:
			s.waiting = append(s.waiting, describe(peer, "is being deleted"))
		case peer.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringNo || peer.Spec.IncomingPeeringEnabled != discoveryv1alpha1.PeeringNo:
			s.stop = append(s.stop, peer)
		case peer.Status.ObservedGeneration < peer.Generation:
			s.waiting = append(s.waiting, describe(peer, "has not been processed by the controller manager; check that it runs"))
		case up(peer, discoveryv1alpha1.OutgoingPeering) || up(peer, discoveryv1alpha1.IncomingPeering):
			s.waiting = append(s.waiting, describe(peer, "is still peered"))
		default:
			s.remove = append(s.remove, peer)
		}
	}
	for _, tunnel := range tunnels {
		s.waiting = append(
			s.waiting,
			fmt.Sprintf("TunnelEndpoint %s/%s, the tunnel to %s, is still there", tunnel.Namespace, tunnel.Name, tunnel.Spec.ClusterIdentity.ClusterName),
		)
	}
	for _, tenant := range tenants {
		switch {
		case tenant.DeletionTimestamp == nil && len(peers) == 0:
			s.waiting = append(
				s.waiting,
				fmt.Sprintf("namespace %s belongs to no ForeignCluster any more; if it holds nothing of yours: kubectl delete namespace %[1]s", tenant.Name),
			)
		case tenant.DeletionTimestamp == nil:
			s.waiting = append(s.waiting, fmt.Sprintf("namespace %s is still there", tenant.Name))
		default:
			text := fmt.Sprintf("namespace %s is being deleted", tenant.Name)
			if reported := ending.Obstacles(&tenant); reported != "" {
				text += "; " + reported
			}
			s.waiting = append(s.waiting, text)
		}
	}
	return s
}

// unoffload returns the commands that end the offloadings that are to stay. A namespace that is being deleted takes its offloading along, which
// Kubernetes marks later.
func unoffload(all []offloadingv1alpha1.NamespaceOffloading, namespaces []corev1.Namespace) (commands []string) {
	for i := range all {
		goes := func(n corev1.Namespace) bool { return n.Name == all[i].Namespace && ending.Is(&n) }
		if !ending.Is(&all[i]) && !slices.ContainsFunc(namespaces, goes) {
			commands = append(commands, "liqoctl unoffload namespace "+all[i].Namespace)
		}
	}
	slices.Sort(commands)
	return commands
}

func condition(peer discoveryv1alpha1.ForeignCluster, of discoveryv1alpha1.PeeringConditionType) discoveryv1alpha1.PeeringCondition {
	for _, c := range peer.Status.PeeringConditions {
		if c.Type == of {
			return c
		}
	}
	return discoveryv1alpha1.PeeringCondition{Type: of, Status: discoveryv1alpha1.StatusNone}
}

// up reports whether a direction has not ended. A peer that is refused keeps its request, which goes with the ForeignCluster.
func up(peer discoveryv1alpha1.ForeignCluster, of discoveryv1alpha1.PeeringConditionType) bool {
	is := condition(peer, of).Status
	refused := of == discoveryv1alpha1.IncomingPeering && peer.Spec.IncomingPeeringEnabled == discoveryv1alpha1.PeeringNo && is == discoveryv1alpha1.StatusDenied
	return is != discoveryv1alpha1.StatusNone && !refused
}

// describe explains a state with the conditions of the directions that have not ended.
func describe(peer discoveryv1alpha1.ForeignCluster, state string) string {
	text := fmt.Sprintf("ForeignCluster %s %s", peer.Name, state)
	for _, of := range []discoveryv1alpha1.PeeringConditionType{discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.IncomingPeering} {
		if !up(peer, of) {
			continue
		}
		c := condition(peer, of)
		text += fmt.Sprintf("; %s is %s (%s)", c.Type, c.Status, c.Reason)
		if c.Message != "" {
			text += ": " + c.Message
		}
	}
	return text
}
