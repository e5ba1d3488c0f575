// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/report"
)

// What the nodes see, and how much of a connection that makes.

// wellness is how well the connection works.
type wellness int

const (
	// none of it does, or for too few nodes.
	none wellness = iota
	// partial: some nodes are cut off. The connection is not called established, but what runs at the peer is worth something.
	partial
	whole
)

// howWell judges by the reason, and by how many of the Ready nodes reach the peer.
func howWell(reason string, reaching, ready int) wellness {
	switch {
	case reason == netv1alpha1.ReasonConnected || reason == netv1alpha1.ReasonDegraded:
		return whole
	case reason == netv1alpha1.ReasonNodesCutOff && reaching > 0 && 2*reaching >= ready:
		return partial
	default:
		return none
	}
}

// written is what stands in the status.
func written(status *netv1alpha1.TunnelEndpointStatus) wellness {
	switch {
	case status.Connection.Status == netv1alpha1.Connected:
		return whole
	case meta.IsStatusConditionTrue(status.Conditions, netv1alpha1.ConditionUsable):
		return partial
	default:
		return none
	}
}

// views merges what the nodes told the gateways: of each node, what it told last.
func (f *tunnelFacts) views() map[string]report.Node {
	last := map[string]report.Node{}
	for lane, h := range f.heard {
		peer := h.peer(f.tunnel.Spec.ClusterIdentity.ClusterID)
		if h.silent || peer == nil || !slices.Contains(f.lanes, lane) {
			continue
		}
		for _, node := range peer.Nodes {
			other, ok := last[node.Name]
			if isHeard(&node) && (!ok || node.SilentMilliseconds < other.SilentMilliseconds) {
				last[node.Name] = node
			}
		}
	}
	return last
}

// cutOff are the Ready nodes that said that no lane works.
func (f *tunnelFacts) cutOff() (cut []string) {
	views := f.views()
	for _, name := range f.ready {
		if view, ok := views[name]; ok && view.Lane < 0 {
			cut = append(cut, name)
		}
	}
	return cut
}

// unheard are the Ready nodes that no gateway hears.
func (f *tunnelFacts) unheard() (missing []string) {
	views := f.views()
	for _, name := range f.ready {
		if _, ok := views[name]; !ok {
			missing = append(missing, name)
		}
	}
	return missing
}

// deaf are the unheard ones whose packets are lost, as far as can be seen: those that a gateway has heard before. One that none ever did
// may be new, or none that runs an agent; but not all nodes at once, where there was a connection.
func (f *tunnelFacts) deaf() []string {
	missing, was := f.unheard(), f.tunnel.Status.Connection.Status
	if len(missing) == len(f.ready) && (was == netv1alpha1.Connected || was == netv1alpha1.ConnectionError) {
		return missing
	}
	return slices.DeleteFunc(missing, func(name string) bool { return !slices.Contains(f.lost, name) && !f.wasHeard(name) })
}

// wasHeard tells whether a gateway that reports has ever heard a node.
func (f *tunnelFacts) wasHeard(name string) bool {
	for lane := range f.heard {
		h := f.heard[lane]
		if peer := h.peer(f.tunnel.Spec.ClusterIdentity.ClusterID); peer != nil && !h.silent && slices.ContainsFunc(peer.Nodes, func(node report.Node) bool {
			return node.Name == name && node.SilentMilliseconds >= 0
		}) {
			return true
		}
	}
	return false
}

// cutOffNow are all nodes that are known not to reach the peer.
func (f *tunnelFacts) cutOffNow() []string { return slices.Concat(f.cutOff(), f.deaf()) }
