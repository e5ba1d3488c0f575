// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"liqo.io/liqo/internal/network/plan"
)

// driver is the only tunnel technology so far.
const driver = "wireguard"

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	peerLabels = []string{"driver", "device", "cluster_id", "cluster_name"}

	received       = describe("liqo_peer_receive_bytes_total", "Bytes received from a peer through the tunnel.", peerLabels...)
	transmitted    = describe("liqo_peer_transmit_bytes_total", "Bytes sent to a peer through the tunnel.", peerLabels...)
	latency        = describe("liqo_peer_latency_us", "Mean round trip of the last probes to the peer's gateway, in microseconds.", peerLabels...)
	connected      = describe("liqo_peer_is_connected", "1 if probes to the peer's gateway come back, else 0.", peerLabels...)
	handshakeAge   = describe("liqo_peer_handshake_age_seconds", "Time since the last handshake with a peer, in seconds.", peerLabels...)
	carriedBy      = describe("liqo_peer_carrier", "1, with the carrier of the tunnel to a peer as a label: UDP, TLS or WebSocket.", append(slices.Clone(peerLabels), "carrier")...)
	streamReceived = describe("liqo_peer_stream_receive_bytes_total", "Bytes of the tunnel received from a peer over TLS or WebSockets, copies that try UDP excepted.", peerLabels...)
	streamSent     = describe("liqo_peer_stream_transmit_bytes_total", "Bytes of the tunnel sent to a peer over TLS or WebSockets.", peerLabels...)
	streamDropped  = describe("liqo_peer_stream_dropped_packets_total", "Packets to a peer that a stream was too slow for.", peerLabels...)
	streamTooLarge = describe("liqo_peer_stream_oversized_packets_total", "Packets to or from a peer that are larger than a stream or the tunnel's device takes; streams were not too slow for them.", peerLabels...)
	peerMTU        = describe("liqo_peer_mtu_bytes", "Largest packet that passed to the peer and back, in bytes.", peerLabels...)
	loss           = describe("liqo_probe_loss_ratio", "Share of the last probes that were lost.", strings.Fields("leg cluster_id cluster_name node")...)
	implementation = describe("liqo_wireguard_implementation", "1, with the implementation of WireGuard as a label.", "driver", "implementation")
)

// Describe implements prometheus.Collector.
func (g *Gateway) Describe(all chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{received, transmitted, latency, connected, handshakeAge, carriedBy, streamReceived, streamSent, streamDropped, streamTooLarge, peerMTU, loss, implementation} {
		all <- one
	}
}

// Collect implements prometheus.Collector. The number of series grows with peers and nodes.
func (g *Gateway) Collect(out chan<- prometheus.Metric) {
	var all []prometheus.Metric
	send := func(what *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		all = append(all, prometheus.MustNewConstMetric(what, kind, value, labels...))
	}
	if made := g.host.Implementation(); made != "" {
		send(implementation, prometheus.GaugeValue, 1, driver, made)
	}
	g.collectPeers(send)
	for _, node := range g.observationsOf("") {
		if !node.Last.IsZero() {
			send(loss, prometheus.GaugeValue, node.Lost, "node-gateway", "", "", node.Node)
		}
	}
	for _, one := range all { // outside the locks, because the receiver may be slow
		out <- one
	}
}

func (g *Gateway) collectPeers(send func(what *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string)) {
	now := time.Now()
	results := g.prober.Results()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, peer := range g.iteration.Snapshot.Peers {
		state, labels := g.reportPeer(now, peer, results[g.target(peer)]), []string{driver, plan.TunnelLink, peer.ClusterID, peer.Name}
		tunnel := g.tunnel[state.RemoteKey]
		send(received, prometheus.CounterValue, float64(tunnel.ReceiveBytes), labels...)
		send(transmitted, prometheus.CounterValue, float64(tunnel.TransmitBytes), labels...)
		up := 0.0
		if state.Up {
			up = 1
		}
		send(connected, prometheus.GaugeValue, up, labels...)
		if state.RTTMicroseconds > 0 {
			send(latency, prometheus.GaugeValue, float64(state.RTTMicroseconds), labels...)
		}
		if state.HandshakeSeconds >= 0 {
			send(handshakeAge, prometheus.GaugeValue, age(now, tunnel.LastHandshake).Seconds(), labels...)
		}
		if state.Carrier != "" {
			send(carriedBy, prometheus.GaugeValue, 1, append(slices.Clone(labels), state.Carrier)...)
		}
		if key, is := keyOf(state.RemoteKey); is {
			totals := g.o.Hub.TotalsOf(key)
			send(streamReceived, prometheus.CounterValue, float64(totals.Received.Load()), labels...)
			send(streamSent, prometheus.CounterValue, float64(totals.Sent.Load()), labels...)
			send(streamDropped, prometheus.CounterValue, float64(totals.Dropped.Load()), labels...)
			send(streamTooLarge, prometheus.CounterValue, float64(totals.Oversized.Load()), labels...)
		}
		if state.MTU > 0 {
			send(peerMTU, prometheus.GaugeValue, float64(state.MTU), labels...)
		}
		send(loss, prometheus.GaugeValue, state.Lost, "gateway-gateway", peer.ClusterID, peer.Name, "")
	}
}
