// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"time"

	"liqo.io/liqo/internal/network/report"
)

const (
	// nodeReportTimeout is the age at which a node's report to a gateway no longer counts.
	nodeReportTimeout = 5 * time.Second
	// staleHandshake is the age in seconds at which a handshake is too old: WireGuard renews it after two minutes and drops it after three.
	staleHandshake = 180
	// everyPeer stands for all peers in place of a cluster ID.
	everyPeer = ""
)

// observation is the last report of a gateway pod.
type observation struct {
	lane         int
	pod, address string
	reported     report.Gateway
	at           time.Time
	// silent: no report arrived for too long, or ever.
	silent bool
	// unproven: what answers at the address last did not have the key of the gateway.
	unproven bool
	// published are the latencies that were enqueued last, in microseconds by peer.
	published map[string]int64
}

// peer returns the report on one peer; nil if there is none.
func (h *observation) peer(clusterID string) *report.Peer {
	for i := range h.reported.Peers {
		if h.reported.Peers[i].ClusterID == clusterID {
			return &h.reported.Peers[i]
		}
	}
	return nil
}

// changedPeers returns the peers whose status must be written. Growing ages and small changes of a latency do not count.
func changedPeers(before, now *observation) (peers []string) {
	if before.silent != now.silent || before.reported.Error != now.reported.Error || before.reported.Lane != now.reported.Lane {
		return []string{everyPeer}
	}
	for i := range now.reported.Peers {
		peer := &now.reported.Peers[i]
		old := before.peer(peer.ClusterID)
		if old == nil || differs(old, peer) || latencyDiffers(before.published[peer.ClusterID], peer.RTTMicroseconds) {
			peers = append(peers, peer.ClusterID)
		}
	}
	for i := range before.reported.Peers {
		if id := before.reported.Peers[i].ClusterID; now.peer(id) == nil {
			peers = append(peers, id)
		}
	}
	return peers
}

func differs(a, b *report.Peer) bool {
	return a.Up != b.Up || b.Up && a.Endpoint != b.Endpoint || a.RemoteKey != b.RemoteKey || a.MTU != b.MTU || a.Problem != b.Problem || a.Carrier != b.Carrier || a.WhyNot != b.WhyNot ||
		handshakeState(a) != handshakeState(b) ||
		!slices.EqualFunc(a.Nodes, b.Nodes, func(a, b report.Node) bool {
			return a.Name == b.Name && a.Lane == b.Lane && isRecent(&a) == isRecent(&b)
		})
}

func isRecent(node *report.Node) bool {
	return node.SilentMilliseconds >= 0 && node.SilentMilliseconds < nodeReportTimeout.Milliseconds()
}

// handshakeState is 0 for never, 1 for too long ago, 2 for lately.
func handshakeState(peer *report.Peer) int {
	switch {
	case peer.HandshakeSeconds < 0:
		return 0
	case peer.HandshakeSeconds > staleHandshake:
		return 1
	default:
		return 2
	}
}

// latencyDiffers reports whether a round trip differs from the reported one by more than half of it and more than a millisecond.
func latencyDiffers(reported, now int64) bool {
	if now <= 0 {
		return false // not measured
	}
	difference := max(reported, now) - min(reported, now)
	return reported <= 0 || difference > reported/2 && difference > 1000
}

func publishedLatencies(published map[string]int64, reported *report.Gateway, updates []string) map[string]int64 {
	kept := map[string]int64{}
	for i := range reported.Peers {
		peer := &reported.Peers[i]
		if slices.Contains(updates, peer.ClusterID) || slices.Contains(updates, everyPeer) {
			kept[peer.ClusterID] = peer.RTTMicroseconds
		} else {
			kept[peer.ClusterID] = published[peer.ClusterID]
		}
	}
	return kept
}
