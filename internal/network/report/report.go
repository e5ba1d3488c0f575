// SPDX-License-Identifier: Apache-2.0

// Package report is the report of a gateway to the controller manager: lines of JSON over HTTPS, one at each change and one each second.
// Agents write no objects; the controller manager reads the report and writes the status. The package holds the types, and what proves a gateway to its reader.
package report

// Path of the report on a gateway, at [SecurePort] of the pod's address, and for readers of earlier versions at Port without TLS. The answer does not
// end until one side closes it.
const (
	Path = "/state"
	Port = 5873
)

// Gateway is one line.
type Gateway struct {
	// Lane of the gateway, and the Kubernetes node it runs on.
	Lane int    `json:"lane"`
	Node string `json:"node"`
	// Implementation of WireGuard: kernel or userspace.
	Implementation string `json:"implementation"`
	// PublicKey that the tunnel has now.
	PublicKey string `json:"publicKey"`
	// Error of the last attempt to apply the plan; empty if it succeeded.
	Error string `json:"error,omitempty"`
	Peers []Peer `json:"peers"`
}

// Peer is the state of the tunnel to the gateway of the same lane at one peer.
type Peer struct {
	ClusterID string `json:"clusterID"`
	// Generation of the TunnelEndpoint that the tunnel was made from.
	Generation int64 `json:"generation"`
	// Up: probes come back. It is false at first, and again after three lost probes.
	Up bool `json:"up"`
	// Lost is the share of recent probes that were lost, from 0 to 1.
	Lost float64 `json:"lost"`
	// RTTMicroseconds is the mean round trip of the last probes; 0 without any.
	RTTMicroseconds int64 `json:"rttMicroseconds,omitempty"`
	// SilentMilliseconds is how long ago a probe came back; -1 for never.
	SilentMilliseconds int64 `json:"silentMilliseconds"`
	// HandshakeSeconds is how long ago the last handshake was; -1 for never.
	HandshakeSeconds int64 `json:"handshakeSeconds"`
	// Endpoint is where packets are sent to, or what is dialled; empty if the peer dials and has not yet.
	Endpoint string `json:"endpoint,omitempty"`
	// Carrier carries the packets: UDP, TLS or WebSocket; empty if it is not known yet.
	Carrier string `json:"carrier,omitempty"`
	// WhyNot is why no better carrier carries them; empty if there is none.
	WhyNot string `json:"whyNot,omitempty"`
	// RemoteKey is the public key of the peer's gateway that is in use.
	RemoteKey string `json:"remoteKey,omitempty"`
	// MTU is the largest packet that came back; 0 if unknown.
	MTU int `json:"mtu,omitempty"`
	// Problem is why the peer cannot even be dialled, for example a name that DNS does not know.
	Problem string `json:"problem,omitempty"`
	// Nodes are what the nodes of this cluster reported to this gateway about the peer, sorted by name. Each node probes all lanes.
	Nodes []Node `json:"nodes,omitempty"`
}

// Node is what one node measures of the peer, from end to end.
type Node struct {
	Name string `json:"name"`
	// SilentMilliseconds is how long ago this gateway received the node's last report; -1 for never.
	SilentMilliseconds int64 `json:"silentMilliseconds"`
	// Lane that the node uses, -1 if none works; LanesUp are those whose probes come back.
	Lane    int   `json:"lane"`
	LanesUp []int `json:"lanesUp,omitempty"`
}
