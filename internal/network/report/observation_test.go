// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"
)

func TestChangedPeers(t *testing.T) {
	base := func() *Observation {
		return &Observation{
			Published: map[string]int64{"milan-id": 1500, "else": 0},
			Reported: Gateway{Peers: []Peer{{ClusterID: "else"}, {
				ClusterID: "milan-id", Up: true, RTTMicroseconds: 1500, SilentMilliseconds: 100, HandshakeSeconds: 20, Endpoint: "203.0.113.7:5871",
				RemoteKey: "key", MTU: 1420,
				Nodes: []Node{{Name: "n1", Lane: 0, SilentMilliseconds: 80}, {Name: "n2", Lane: 1, SilentMilliseconds: 90}},
			}}},
		}
	}
	for name, row := range map[string]struct {
		change  func(*Observation, *Peer)
		updates int
	}{
		"nothing": {func(*Observation, *Peer) {}, 0},
		"ages": {func(_ *Observation, p *Peer) {
			p.HandshakeSeconds, p.SilentMilliseconds, p.Lost, p.Generation = 120, 900, 0.1, 9
		}, 0},
		"jitter":             {func(_ *Observation, p *Peer) { p.RTTMicroseconds = 2400 }, 0},
		"latency":            {func(_ *Observation, p *Peer) { p.RTTMicroseconds = 2600 }, 1},
		"latency unmeasured": {func(_ *Observation, p *Peer) { p.RTTMicroseconds = 0 }, 0},
		"down":               {func(_ *Observation, p *Peer) { p.Up = false }, 1},
		"roamed":             {func(_ *Observation, p *Peer) { p.Endpoint = "203.0.113.8:5871" }, 1},
		"MTU":                {func(_ *Observation, p *Peer) { p.MTU = 1280 }, 1},
		"node switched":      {func(_ *Observation, p *Peer) { p.Nodes[0].Lane = 1 }, 1},
		"node silent":        {func(_ *Observation, p *Peer) { p.Nodes[0].SilentMilliseconds = 6000 }, 1},
		"node a bit silent":  {func(_ *Observation, p *Peer) { p.Nodes[0].SilentMilliseconds = 3000 }, 0},
		"node gone":          {func(_ *Observation, p *Peer) { p.Nodes = p.Nodes[:1] }, 1},
		"handshake old":      {func(_ *Observation, p *Peer) { p.HandshakeSeconds = 181 }, 1},
		"gateway's error":    {func(h *Observation, _ *Peer) { h.Reported.Error = "x" }, 1},
		"peer gone":          {func(h *Observation, _ *Peer) { h.Reported.Peers = h.Reported.Peers[:1] }, 1},
		"silent":             {func(h *Observation, _ *Peer) { h.Silent = true }, 1},
	} {
		now := base()
		row.change(now, &now.Reported.Peers[1])
		if got := ChangedPeers(base(), now); len(got) != row.updates {
			t.Errorf("%s: %v", name, got)
		}
	}
	// A latency that creeps is published when it has crept far enough.
	before := base()
	published := 0
	for rtt := int64(1500); rtt < 6000; rtt += 100 {
		now := base()
		now.Reported.Peers[1].RTTMicroseconds = rtt
		now.Published = before.Published
		updates := ChangedPeers(before, now)
		now.Published = PublishedLatencies(before.Published, &now.Reported, updates)
		published += len(updates)
		before = now
	}
	if published < 2 || published > 4 {
		t.Errorf("published %d times", published)
	}
}
