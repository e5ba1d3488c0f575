// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Sightings are what the nodes tell a gateway, the newest of each. The zero value is ready for use, by one goroutine at a time.
type Sightings struct {
	nodes map[string]*sighted
}

type sighted struct {
	last     time.Time
	sender   uint64
	sequence uint64
	// window has a bit for each of the last 64 packets, counted their number so far.
	window  uint64
	counted int
	peers   map[string]sighting
}

type sighting struct {
	at    time.Time
	sight Sight
}

// NodeSight is what one node sees of one peer.
type NodeSight struct {
	Node string
	// Last is when the node was heard; zero for never. Then Lane is -1.
	Last time.Time
	Lane int
	Up   []int
	// Lost is the share of the node's packets that did not arrive here.
	Lost float64
}

// Keep says which nodes and peers there are; others are forgotten, and not heard.
func (s *Sightings) Keep(nodes, clusterIDs []string) {
	kept := make(map[string]*sighted, len(nodes))
	for _, name := range nodes {
		node := s.nodes[name]
		if node == nil {
			node = &sighted{peers: map[string]sighting{}}
		}
		for id := range node.peers {
			if !slices.Contains(clusterIDs, id) {
				delete(node.peers, id)
			}
		}
		for _, id := range clusterIDs {
			if _, ok := node.peers[id]; !ok {
				node.peers[id] = sighting{}
			}
		}
		kept[name] = node
	}
	s.nodes = kept
}

// Hear takes one packet.
func (s *Sightings) Hear(now time.Time, heard Heard) {
	node := s.nodes[heard.Node]
	if node == nil {
		return
	}
	node.count(heard.sender, heard.sequence)
	node.last = now
	for _, sight := range heard.Sights {
		if _, known := node.peers[sight.ClusterID]; known {
			node.peers[sight.ClusterID] = sighting{at: now, sight: sight}
		}
	}
}

func (n *sighted) count(sender, sequence uint64) {
	switch ahead := int64(sequence - n.sequence); {
	case n.sender != sender || ahead < -64: // another process, or the same one after a long time
		n.sender, n.sequence, n.window, n.counted = sender, sequence, 1, 1
	case ahead > 0:
		n.sequence, n.window, n.counted = sequence, n.window<<min(ahead, 64)|1, min(64, n.counted+int(min(ahead, 64)))
	default:
		n.window |= 1 << min(-ahead, 63)
	}
}

func (n *sighted) lost() float64 {
	if n.counted == 0 {
		return 0
	}
	return max(0, 1-float64(bits.OnesCount64(n.window))/float64(n.counted))
}

// Of gives what all nodes see of one peer, sorted by their names; of "", how each node is heard.
func (s *Sightings) Of(clusterID string) []NodeSight {
	all := make([]NodeSight, 0, len(s.nodes))
	for name, node := range s.nodes {
		seen := NodeSight{Node: name, Last: node.last, Lane: -1, Lost: node.lost()}
		if peer := node.peers[clusterID]; !peer.at.IsZero() {
			seen.Lane, seen.Up = peer.sight.Lane, peer.sight.Up
			seen.Last = peer.at
		}
		all = append(all, seen)
	}
	slices.SortFunc(all, func(a, b NodeSight) int { return strings.Compare(a.Node, b.Node) })
	return all
}
