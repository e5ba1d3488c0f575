// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"time"
)

const (
	// nodeReportTimeout is the age at which a node's report to a gateway no longer counts.
	nodeReportTimeout = 5 * time.Second
	// StaleHandshake is the age in seconds at which a handshake is too old: WireGuard renews it after two minutes and drops it after three.
	StaleHandshake = 180
	// EveryPeer stands for all peers in place of a cluster ID.
	EveryPeer = ""
)

// Observation is the last report of a gateway pod.
type Observation struct {
	Lane         int
	Pod, Address string
	Reported     Gateway
	At           time.Time
	// Silent: no report arrived for too long, or ever.
	Silent bool
	// Unproven: what answers at the address last did not have the key of the gateway.
	Unproven bool
	// Published are the latencies that were enqueued last, in microseconds by peer.
	Published map[string]int64
}

// Peer returns the report on one peer; nil if there is none.
func (h *Observation) Peer(clusterID string) *Peer {
	for i := range h.Reported.Peers {
		if h.Reported.Peers[i].ClusterID == clusterID {
			return &h.Reported.Peers[i]
		}
	}
	return nil
}

// ChangedPeers returns the peers whose status must be written. Growing ages and small changes of a latency do not count.
func ChangedPeers(before, now *Observation) (peers []string) {
	if before.Silent != now.Silent || before.Reported.Error != now.Reported.Error || before.Reported.Lane != now.Reported.Lane {
		return []string{EveryPeer}
	}
	for i := range now.Reported.Peers {
		peer := &now.Reported.Peers[i]
		old := before.Peer(peer.ClusterID)
		if old == nil || differs(old, peer) || LatencyDiffers(before.Published[peer.ClusterID], peer.RTTMicroseconds) {
			peers = append(peers, peer.ClusterID)
		}
	}
	for i := range before.Reported.Peers {
		if id := before.Reported.Peers[i].ClusterID; now.Peer(id) == nil {
			peers = append(peers, id)
		}
	}
	return peers
}

func differs(a, b *Peer) bool {
	return a.Up != b.Up || b.Up && a.Endpoint != b.Endpoint || a.RemoteKey != b.RemoteKey ||
		a.MTU != b.MTU || a.Problem != b.Problem || a.Carrier != b.Carrier || a.WhyNot != b.WhyNot ||
		HandshakeState(a) != HandshakeState(b) ||
		!slices.EqualFunc(a.Nodes, b.Nodes, func(a, b Node) bool {
			return a.Name == b.Name && a.Lane == b.Lane && IsRecent(&a) == IsRecent(&b)
		})
}

func IsRecent(node *Node) bool {
	return node.SilentMilliseconds >= 0 && node.SilentMilliseconds < nodeReportTimeout.Milliseconds()
}

// HandshakeState is 0 for never, 1 for too long ago, 2 for lately.
func HandshakeState(peer *Peer) int {
	switch {
	case peer.HandshakeSeconds < 0:
		return 0
	case peer.HandshakeSeconds > StaleHandshake:
		return 1
	default:
		return 2
	}
}

// LatencyDiffers reports whether a round trip differs from the reported one by more than half of it and more than a millisecond.
func LatencyDiffers(reported, now int64) bool {
	if now <= 0 {
		return false // not measured
	}
	difference := max(reported, now) - min(reported, now)
	return reported <= 0 || difference > reported/2 && difference > 1000
}

func PublishedLatencies(published map[string]int64, reported *Gateway, updates []string) map[string]int64 {
	kept := map[string]int64{}
	for i := range reported.Peers {
		peer := &reported.Peers[i]
		if slices.Contains(updates, peer.ClusterID) || slices.Contains(updates, EveryPeer) {
			kept[peer.ClusterID] = peer.RTTMicroseconds
		} else {
			kept[peer.ClusterID] = published[peer.ClusterID]
		}
	}
	return kept
}
