// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"strings"
	"time"

	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/probe"
	"liqo.io/liqo/internal/network/report"
)

// longest text of an error that is told.
const longest = 1000

// Report is what the gateway knows now.
func (g *Gateway) Report(now time.Time) report.Gateway {
	results, implementation := g.prober.Results(), g.host.Implementation()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.round.Snapshot
	said := report.Gateway{
		Lane: g.o.Lane, Node: g.o.Node, Implementation: implementation, PublicKey: s.Self.PublicKey, Peers: []report.Peer{},
	}
	switch problem := g.prober.Problem(); {
	case !g.round.Applied && g.round.Err != nil:
		said.Error = short(g.round.Err.Error())
	case problem != nil:
		said.Error = short(problem.Error())
	}
	for _, peer := range s.Peers {
		said.Peers = append(said.Peers, g.reportPeer(now, peer, results[g.target(peer)]))
	}
	return said
}

func (g *Gateway) reportPeer(now time.Time, peer plan.Peer, result probe.Result) report.Peer {
	said := report.Peer{
		ClusterID: peer.ClusterID, Generation: g.views[peer.ClusterID].Generation,
		Up: result.State == probe.Up, Lost: result.Lost, RTTMicroseconds: result.RoundTrip.Microseconds(),
		SilentMilliseconds: age(now, result.Last).Milliseconds(), HandshakeSeconds: -1, MTU: result.MTU,
	}
	if result.Last.IsZero() {
		said.SilentMilliseconds = -1
	}
	for _, lane := range peer.Lanes {
		if lane.Number != g.o.Lane || len(lane.Keys) == 0 {
			continue
		}
		said.RemoteKey = lane.Keys[0]
		tunnel := g.tunnel[said.RemoteKey]
		if tunnel.Endpoint.IsValid() {
			said.Endpoint = tunnel.Endpoint.String()
		} else if lane.Endpoint.IsValid() {
			said.Endpoint = lane.Endpoint.String()
		}
		if !tunnel.LastHandshake.IsZero() {
			said.HandshakeSeconds = int64(age(now, tunnel.LastHandshake).Seconds())
		}
	}
	if known := g.peers[peer.ClusterID]; known != nil {
		said.Problem = short(known.problem)
	}
	if said.Problem == "" && g.round.Known && g.round.Applied && !isPlanned(g.round.State, peer) {
		said.Problem = short(g.refusal(peer.ClusterID))
	}
	for _, sight := range g.sights(peer.ClusterID) {
		node := report.Node{Name: sight.Node, SilentMilliseconds: -1, Lane: sight.Lane, LanesUp: sight.Up}
		if !sight.Last.IsZero() {
			node.SilentMilliseconds = age(now, sight.Last).Milliseconds()
		}
		said.Nodes = append(said.Nodes, node)
	}
	return said
}

// refusal is what the errors of the last round say of a peer.
func (g *Gateway) refusal(clusterID string) string {
	text := ""
	if g.round.Err != nil {
		text = g.round.Err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return !strings.Contains(line, clusterID) })
	if len(lines) == 0 {
		return "it is not part of the plan"
	}
	return strings.Join(lines, "; ")
}

// sights are what the nodes see of a peer; of "", how the nodes are heard.
func (g *Gateway) sights(clusterID string) []probe.NodeObservation {
	g.sighting.Lock()
	defer g.sighting.Unlock()
	return g.sightings.Of(clusterID)
}

func (g *Gateway) hear(heard probe.NodeReport) {
	g.sighting.Lock()
	defer g.sighting.Unlock()
	g.sightings.Add(time.Now(), heard)
}

func age(now, at time.Time) time.Duration { return max(0, now.Sub(at)) }

func short(text string) string {
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return text
}
