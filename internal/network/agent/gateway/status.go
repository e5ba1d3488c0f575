// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"strings"
	"time"

	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/probe"
	"liqo.io/liqo/internal/network/report"
)

// longest bounds the text of an error in the report.
const longest = 1000

// Report returns what the gateway knows now.
func (g *Gateway) Report(now time.Time) report.Gateway {
	results, implementation := g.prober.Results(), g.host.Implementation()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.iteration.Snapshot
	out := report.Gateway{
		Lane: g.o.Lane, Node: g.o.Node, Implementation: implementation, PublicKey: s.Self.PublicKey, Peers: []report.Peer{},
	}
	switch problem := g.prober.Problem(); {
	case !g.iteration.Applied && g.iteration.Err != nil:
		out.Error = short(g.iteration.Err.Error())
	case problem != nil:
		out.Error = short(problem.Error())
	}
	for _, peer := range s.Peers {
		out.Peers = append(out.Peers, g.reportPeer(now, peer, results[g.target(peer)]))
	}
	return out
}

func (g *Gateway) reportPeer(now time.Time, peer plan.Peer, result probe.Result) report.Peer {
	out := report.Peer{
		ClusterID: peer.ClusterID, Generation: g.views[peer.ClusterID].Generation,
		Up: result.State == probe.Up, Lost: result.Lost, RTTMicroseconds: result.RoundTrip.Microseconds(),
		SilentMilliseconds: age(now, result.Last).Milliseconds(), HandshakeSeconds: -1, MTU: result.MTU,
	}
	if result.Last.IsZero() {
		out.SilentMilliseconds = -1
	}
	for _, lane := range peer.Lanes {
		if lane.Number != g.o.Lane || len(lane.Keys) == 0 {
			continue
		}
		out.RemoteKey = lane.Keys[0]
		tunnel := g.tunnel[out.RemoteKey]
		if tunnel.Endpoint.IsValid() {
			out.Endpoint = tunnel.Endpoint.String()
		} else if lane.Endpoint.IsValid() {
			out.Endpoint = lane.Endpoint.String()
		}
		out.Carrier, out.Endpoint = g.streams.carrierOf(out.RemoteKey, tunnel.Endpoint, out.Endpoint)
		out.WhyNot = short(g.streams.whyNot(out.RemoteKey, out.Carrier, g.views[peer.ClusterID].Endpoints[g.o.Lane]))
		if !tunnel.LastHandshake.IsZero() {
			out.HandshakeSeconds = int64(age(now, tunnel.LastHandshake).Seconds())
		}
	}
	if known := g.peers[peer.ClusterID]; known != nil {
		out.Problem = short(known.problem)
	}
	if out.Problem == "" && g.iteration.Known && g.iteration.Applied && !isPlanned(g.iteration.State, peer) {
		out.Problem = short(g.refusal(peer.ClusterID))
	}
	for _, observation := range g.observationsOf(peer.ClusterID) {
		node := report.Node{Name: observation.Node, SilentMilliseconds: -1, Lane: observation.Lane, LanesUp: observation.Up}
		if !observation.Last.IsZero() {
			node.SilentMilliseconds = age(now, observation.Last).Milliseconds()
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}

// refusal returns the errors of the last iteration that name a peer.
func (g *Gateway) refusal(clusterID string) string {
	text := ""
	if g.iteration.Err != nil {
		text = g.iteration.Err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return !strings.Contains(line, clusterID) })
	if len(lines) == 0 {
		return "the peer is not part of the plan; see the log of the gateway"
	}
	return strings.Join(lines, "; ")
}

// observationsOf returns what the nodes observed of a peer; for "", when each node reported.
func (g *Gateway) observationsOf(clusterID string) []probe.NodeObservation {
	g.observationsMu.Lock()
	defer g.observationsMu.Unlock()
	return g.observations.Of(clusterID)
}

func (g *Gateway) receive(report probe.NodeReport) {
	g.observationsMu.Lock()
	defer g.observationsMu.Unlock()
	g.observations.Add(time.Now(), report)
}

func age(now, at time.Time) time.Duration { return max(0, now.Sub(at)) }

func short(text string) string { return printable.Line(text, longest) }
