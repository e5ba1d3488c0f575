// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Observations are the newest reports of the nodes to a gateway. The zero value is ready for use, by one goroutine at a time.
type Observations struct {
	nodes map[string]*nodeRecord
}

type nodeRecord struct {
	last     time.Time
	sender   uint64
	sequence uint64
	// window has a bit for each of the last 64 packets that arrived; counted is how many of the 64 have been sent so far.
	window  uint64
	counted int
	peers   map[string]peerRecord
}

type peerRecord struct {
	at          time.Time
	observation Observation
}

// NodeObservation is what one node reported of one peer.
type NodeObservation struct {
	Node string
	// Last is when the report arrived; zero for never. Then Lane is -1.
	Last time.Time
	Lane int
	Up   []int
	// Lost is the share of the node's packets that did not arrive here.
	Lost float64
}

// Keep sets the nodes and peers that exist. Reports of others are dropped and ignored from then on.
func (s *Observations) Keep(nodes, clusterIDs []string) {
	kept := make(map[string]*nodeRecord, len(nodes))
	for _, name := range nodes {
		node := s.nodes[name]
		if node == nil {
			node = &nodeRecord{peers: map[string]peerRecord{}}
		}
		for id := range node.peers {
			if !slices.Contains(clusterIDs, id) {
				delete(node.peers, id)
			}
		}
		for _, id := range clusterIDs {
			if _, ok := node.peers[id]; !ok {
				node.peers[id] = peerRecord{}
			}
		}
		kept[name] = node
	}
	s.nodes = kept
}

func (s *Observations) Add(now time.Time, report NodeReport) {
	node := s.nodes[report.Node]
	if node == nil {
		return
	}
	node.count(report.sender, report.sequence)
	node.last = now
	for _, observation := range report.Observations {
		if _, known := node.peers[observation.ClusterID]; known {
			node.peers[observation.ClusterID] = peerRecord{at: now, observation: observation}
		}
	}
}

func (n *nodeRecord) count(sender, sequence uint64) {
	switch ahead := int64(sequence - n.sequence); {
	case n.sender != sender || ahead < -64: // the agent has restarted, or was silent for long
		n.sender, n.sequence, n.window, n.counted = sender, sequence, 1, 1
	case ahead > 0:
		n.sequence, n.window, n.counted = sequence, n.window<<min(ahead, 64)|1, min(64, n.counted+int(min(ahead, 64)))
	default:
		n.window |= 1 << min(-ahead, 63)
	}
}

func (n *nodeRecord) lost() float64 {
	if n.counted == 0 {
		return 0
	}
	return max(0, 1-float64(bits.OnesCount64(n.window))/float64(n.counted))
}

// Of returns what all nodes reported of one peer, sorted by their names. For "" it returns only when each node reported, and its loss.
func (s *Observations) Of(clusterID string) []NodeObservation {
	all := make([]NodeObservation, 0, len(s.nodes))
	for name, node := range s.nodes {
		seen := NodeObservation{Node: name, Last: node.last, Lane: -1, Lost: node.lost()}
		if peer := node.peers[clusterID]; !peer.at.IsZero() {
			seen.Lane, seen.Up = peer.observation.Lane, peer.observation.Up
			seen.Last = peer.at
		}
		all = append(all, seen)
	}
	slices.SortFunc(all, func(a, b NodeObservation) int { return strings.Compare(a.Node, b.Node) })
	return all
}
