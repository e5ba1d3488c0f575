// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"time"

	"liqo.io/liqo/internal/network/report"
)

const (
	// unheardAfter is how long ago a node may have told a gateway what it sees.
	unheardAfter = 5 * time.Second
	// staleHandshake is how old an agreement on keys may be: WireGuard renews it after two minutes and gives it up after three.
	staleHandshake = 180
)

// heard is what a gateway pod said last.
type heard struct {
	lane         int
	pod, address string
	said         report.Gateway
	at           time.Time
	// silent: nothing was heard for too long, or ever.
	silent bool
	// told are the latencies that were told last, in microseconds by peer.
	told map[string]int64
}

// peer is what was said of one peer.
func (h *heard) peer(clusterID string) *report.Peer {
	for i := range h.said.Peers {
		if h.said.Peers[i].ClusterID == clusterID {
			return &h.said.Peers[i]
		}
	}
	return nil
}

// whatIsNew returns the peers of which something else is to be written. An age that grows, and a latency that wavers, are no news.
func whatIsNew(before, now *heard) (peers []string) {
	if before.silent != now.silent || before.said.Error != now.said.Error || before.said.Lane != now.said.Lane {
		return []string{everyPeer}
	}
	for i := range now.said.Peers {
		peer := &now.said.Peers[i]
		old := before.peer(peer.ClusterID)
		if old == nil || differs(old, peer) || otherLatency(before.told[peer.ClusterID], peer.RTTMicroseconds) {
			peers = append(peers, peer.ClusterID)
		}
	}
	for i := range before.said.Peers {
		if id := before.said.Peers[i].ClusterID; now.peer(id) == nil {
			peers = append(peers, id)
		}
	}
	return peers
}

func differs(a, b *report.Peer) bool {
	return a.Up != b.Up || b.Up && a.Endpoint != b.Endpoint || a.RemoteKey != b.RemoteKey || a.MTU != b.MTU || a.Problem != b.Problem ||
		handshakeState(a) != handshakeState(b) ||
		!slices.EqualFunc(a.Nodes, b.Nodes, func(a, b report.Node) bool {
			return a.Name == b.Name && a.Lane == b.Lane && isHeard(&a) == isHeard(&b)
		})
}

func isHeard(node *report.Node) bool {
	return node.SilentMilliseconds >= 0 && node.SilentMilliseconds < unheardAfter.Milliseconds()
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

// otherLatency tells whether a round trip differs from the one that was said: by more than half of it, and by a millisecond.
func otherLatency(said, now int64) bool {
	if now <= 0 {
		return false // not measured
	}
	difference := max(said, now) - min(said, now)
	return said <= 0 || difference > said/2 && difference > 1000
}

func toldLatencies(told map[string]int64, said *report.Gateway, news []string) map[string]int64 {
	kept := map[string]int64{}
	for i := range said.Peers {
		peer := &said.Peers[i]
		if slices.Contains(news, peer.ClusterID) || slices.Contains(news, everyPeer) {
			kept[peer.ClusterID] = peer.RTTMicroseconds
		} else {
			kept[peer.ClusterID] = told[peer.ClusterID]
		}
	}
	return kept
}
