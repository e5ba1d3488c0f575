// SPDX-License-Identifier: Apache-2.0

package tunnelstatus

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/report"
)

// health is the health of a connection, judged from the reports of the nodes.
type health int

const (
	// none: no lane works, or for too few nodes.
	none health = iota
	// partial: some nodes are cut off. The connection does not count as established, but pods at the peer are usable.
	partial
	whole
)

// healthOf judges by the reason, and by how many of the Ready nodes reach the peer.
func healthOf(reason string, reaching, ready int) health {
	switch {
	case reason == netv1alpha1.ReasonConnected || reason == netv1alpha1.ReasonDegraded:
		return whole
	case reason == netv1alpha1.ReasonNodesCutOff && reaching > 0 && 2*reaching >= ready:
		return partial
	default:
		return none
	}
}

// writtenHealth returns the health in a status.
func writtenHealth(status *netv1alpha1.TunnelEndpointStatus) health {
	switch {
	case status.Connection.Status == netv1alpha1.Connected:
		return whole
	case meta.IsStatusConditionTrue(status.Conditions, netv1alpha1.ConditionUsable):
		return partial
	default:
		return none
	}
}

// views returns the newest report of each node, to whichever gateway.
func (f *Facts) views() map[string]report.Node {
	last := map[string]report.Node{}
	for lane, h := range f.Observations {
		peer := h.Peer(f.Tunnel.Spec.ClusterIdentity.ClusterID)
		if h.Silent || peer == nil || !slices.Contains(f.Lanes, lane) {
			continue
		}
		for _, node := range peer.Nodes {
			other, ok := last[node.Name]
			if report.IsRecent(&node) && (!ok || node.SilentMilliseconds < other.SilentMilliseconds) {
				last[node.Name] = node
			}
		}
	}
	return last
}

// cutOff returns the Ready nodes that reported that no lane works.
func (f *Facts) cutOff() (cut []string) {
	views := f.views()
	for _, name := range f.Ready {
		if view, ok := views[name]; ok && view.Lane < 0 {
			cut = append(cut, name)
		}
	}
	return cut
}

// unobserved returns the Ready nodes without a recent report.
func (f *Facts) unobserved() (missing []string) {
	views := f.views()
	for _, name := range f.Ready {
		if _, ok := views[name]; !ok {
			missing = append(missing, name)
		}
	}
	return missing
}

// silentNodes returns the unobserved nodes that reported before, because a node that never did may be new or run no agent. But if there was a
// connection and no node reports any more, it returns all.
func (f *Facts) silentNodes() []string {
	missing, was := f.unobserved(), f.Tunnel.Status.Connection.Status
	if len(missing) == len(f.Ready) && (was == netv1alpha1.Connected || was == netv1alpha1.ConnectionError) {
		return missing
	}
	return slices.DeleteFunc(missing, func(name string) bool { return !slices.Contains(f.Lost, name) && !f.wasObserved(name) })
}

// wasObserved reports whether a node ever reported to one of the present gateways.
func (f *Facts) wasObserved(name string) bool {
	for lane := range f.Observations {
		h := f.Observations[lane]
		if peer := h.Peer(f.Tunnel.Spec.ClusterIdentity.ClusterID); peer != nil && !h.Silent && slices.ContainsFunc(peer.Nodes, func(node report.Node) bool {
			return node.Name == name && node.SilentMilliseconds >= 0
		}) {
			return true
		}
	}
	return false
}

// CutOffNow returns all nodes that do not reach the peer.
func (f *Facts) CutOffNow() []string { return slices.Concat(f.cutOff(), f.silentNodes()) }
