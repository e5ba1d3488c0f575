// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"liqo.io/liqo/internal/kube/metric"
	"liqo.io/liqo/internal/network/hoststate"
)

// driver is the only tunnel technology so far.
const driver = "wireguard"

var (
	peerLabels = []string{"driver", "device", "cluster_id", "cluster_name"}
	role       = []string{"gateway"}

	described metric.Set
	received  = described.Add(metric.Row{
		Name: "liqo_peer_receive_bytes_total", Type: metric.Counter, Labels: peerLabels, Roles: role,
		Help:  "Bytes received from a peer through the tunnel.",
		Panel: metric.Panel{Title: "Received from peers", Query: `sum by (cluster_name) (rate(liqo_peer_receive_bytes_total[5m]))`, Unit: "Bps"},
	})
	transmitted = described.Add(metric.Row{
		Name: "liqo_peer_transmit_bytes_total", Type: metric.Counter, Labels: peerLabels, Roles: role,
		Help:  "Bytes sent to a peer through the tunnel.",
		Panel: metric.Panel{Title: "Sent to peers", Query: `sum by (cluster_name) (rate(liqo_peer_transmit_bytes_total[5m]))`, Unit: "Bps"},
	})
	latency = described.Add(metric.Row{
		Name: "liqo_peer_latency_us", Type: metric.Gauge, Labels: peerLabels, Roles: role,
		Help:  "Mean round trip of the last probes to the peer's gateway, in microseconds.",
		Panel: metric.Panel{Title: "Round trip to peers", Query: `avg by (cluster_name) (liqo_peer_latency_us)`, Unit: "µs"},
	})
	connected = described.Add(metric.Row{
		Name: "liqo_peer_is_connected", Type: metric.Gauge, Labels: peerLabels, Roles: role,
		Help:  "1 if probes to the peer's gateway come back, else 0.",
		Panel: metric.Panel{Title: "Connected peers", Query: `max by (cluster_name) (liqo_peer_is_connected)`, Unit: "bool_yes_no"},
	})
	handshakeAge = described.Add(metric.Row{
		Name: "liqo_peer_handshake_age_seconds", Type: metric.Gauge, Labels: peerLabels, Roles: role,
		Help:  "Time since the last handshake with a peer, in seconds.",
		Panel: metric.Panel{Title: "Last handshake with peers", Query: `min by (cluster_name) (liqo_peer_handshake_age_seconds)`, Unit: "s"},
	})
	carriedBy = described.Add(metric.Row{
		Name: "liqo_peer_carrier", Type: metric.Gauge, Labels: append(slices.Clone(peerLabels), "carrier"), Roles: role,
		Help:  "1, with the carrier of the tunnel to a peer as a label: UDP, TLS or WebSocket.",
		Panel: metric.Panel{Title: "Carriers of tunnels", Query: `sum by (cluster_name, carrier) (liqo_peer_carrier)`, Unit: "short"},
	})
	streamReceived = described.Add(metric.Row{
		Name: "liqo_peer_stream_receive_bytes_total", Type: metric.Counter, Labels: peerLabels, Roles: role,
		Help:  "Bytes of the tunnel received from a peer over TLS or WebSockets, copies that try UDP excepted.",
		Panel: metric.Panel{Title: "Received from peers over streams", Query: `sum by (cluster_name) (rate(liqo_peer_stream_receive_bytes_total[5m]))`, Unit: "Bps"},
	})
	streamSent = described.Add(metric.Row{
		Name: "liqo_peer_stream_transmit_bytes_total", Type: metric.Counter, Labels: peerLabels, Roles: role,
		Help:  "Bytes of the tunnel sent to a peer over TLS or WebSockets.",
		Panel: metric.Panel{Title: "Sent to peers over streams", Query: `sum by (cluster_name) (rate(liqo_peer_stream_transmit_bytes_total[5m]))`, Unit: "Bps"},
	})
	streamDropped = described.Add(metric.Row{
		Name: "liqo_peer_stream_dropped_packets_total", Type: metric.Counter, Labels: peerLabels, Roles: role,
		Help:  "Packets to a peer that a stream was too slow for.",
		Panel: metric.Panel{Title: "Packets that streams dropped", Query: `sum by (cluster_name) (rate(liqo_peer_stream_dropped_packets_total[5m]))`, Unit: "pps"},
	})
	streamTooLarge = described.Add(metric.Row{
		Name: "liqo_peer_stream_oversized_packets_total", Type: metric.Counter, Labels: peerLabels, Roles: role,
		Help:  "Packets to or from a peer that are larger than a stream or the tunnel's device takes; streams were not too slow for them.",
		Panel: metric.Panel{Title: "Packets too large for streams", Query: `sum by (cluster_name) (rate(liqo_peer_stream_oversized_packets_total[5m]))`, Unit: "pps"},
	})
	peerMTU = described.Add(metric.Row{
		Name: "liqo_peer_mtu_bytes", Type: metric.Gauge, Labels: peerLabels, Roles: role,
		Help:  "Largest packet that passed to the peer and back, in bytes.",
		Panel: metric.Panel{Title: "Largest packet to peers", Query: `min by (cluster_name) (liqo_peer_mtu_bytes)`, Unit: "bytes"},
	})
	loss = described.Add(metric.Row{
		Name: "liqo_probe_loss_ratio", Type: metric.Gauge, Labels: strings.Fields("leg cluster_id cluster_name node"), Roles: role,
		Help:  "Share of the last probes that were lost.",
		Panel: metric.Panel{Title: "Lost probes", Query: `max by (leg, cluster_name, node) (liqo_probe_loss_ratio)`, Unit: "percentunit"},
	})
	implementation = described.Add(metric.Row{
		Name: "liqo_wireguard_implementation", Type: metric.Gauge, Labels: []string{"driver", "implementation"}, Roles: role,
		Help:  "1, with the implementation of WireGuard as a label.",
		Panel: metric.Panel{Title: "Implementation of WireGuard", Query: `sum by (implementation) (liqo_wireguard_implementation)`, Unit: "short"},
	})
)

// Describe implements prometheus.Collector.
func (g *Gateway) Describe(all chan<- *prometheus.Desc) { described.Describe(all) }

// Collect implements prometheus.Collector. The number of series grows with peers and nodes.
func (g *Gateway) Collect(out chan<- prometheus.Metric) {
	var all []prometheus.Metric
	send := func(what *metric.Series, value float64, labels ...string) {
		all = append(all, what.Sample(value, labels...))
	}
	if made := g.host.Implementation(); made != "" {
		send(implementation, 1, driver, made)
	}
	g.collectPeers(send)
	for _, node := range g.observationsOf("") {
		if !node.Last.IsZero() {
			send(loss, node.Lost, "node-gateway", "", "", node.Node)
		}
	}
	for _, one := range all { // outside the locks, because the receiver may be slow
		out <- one
	}
}

func (g *Gateway) collectPeers(send func(what *metric.Series, value float64, labels ...string)) {
	now := time.Now()
	results := g.prober.Results()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, peer := range g.iteration.Snapshot.Peers {
		state, labels := g.reportPeer(now, peer, results[g.target(peer)]), []string{driver, hoststate.TunnelLink, peer.ClusterID, peer.Name}
		tunnel := g.tunnel[state.RemoteKey]
		send(received, float64(tunnel.ReceiveBytes), labels...)
		send(transmitted, float64(tunnel.TransmitBytes), labels...)
		up := 0.0
		if state.Up {
			up = 1
		}
		send(connected, up, labels...)
		if state.RTTMicroseconds > 0 {
			send(latency, float64(state.RTTMicroseconds), labels...)
		}
		if state.HandshakeSeconds >= 0 {
			send(handshakeAge, age(now, tunnel.LastHandshake).Seconds(), labels...)
		}
		if state.Carrier != "" {
			send(carriedBy, 1, append(slices.Clone(labels), state.Carrier)...)
		}
		if key, ok := keyOf(state.RemoteKey); ok {
			totals := g.o.Hub.TotalsOf(key)
			send(streamReceived, float64(totals.Received.Load()), labels...)
			send(streamSent, float64(totals.Sent.Load()), labels...)
			send(streamDropped, float64(totals.Dropped.Load()), labels...)
			send(streamTooLarge, float64(totals.Oversized.Load()), labels...)
		}
		if state.MTU > 0 {
			send(peerMTU, float64(state.MTU), labels...)
		}
		send(loss, state.Lost, "gateway-gateway", peer.ClusterID, peer.Name, "")
	}
}
