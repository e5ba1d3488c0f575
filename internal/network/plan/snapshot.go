// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
)

// Snapshot is everything that an agent knows when it plans its host. It is plain data: printed as YAML it is a bug report, and a bug
// report is a test. It holds no secrets: all keys are public.
type Snapshot struct {
	// Local is this cluster.
	Local Cluster `json:"local"`
	// Nodes of this cluster, in the order of their names.
	Nodes []Node `json:"nodes,omitempty"`
	// Gateways of this cluster, in the order of their lanes; a lane whose pod has no address yet is absent.
	Gateways []Gateway `json:"gateways,omitempty"`
	// Peers in the order of their cluster IDs. Without peers nothing is planned at all.
	Peers []Peer `json:"peers,omitempty"`
	// PodsUnknown: the pods of nodes without networks of their own are not listed yet.
	PodsUnknown bool `json:"podsUnknown,omitempty"`
	// Mappings in the order of their external addresses.
	Mappings []Mapping `json:"mappings,omitempty"`
	// Restricted: of our pods, only those in Reachable of a peer exchange packets with that peer, and peers open no connections to nodes.
	Restricted bool `json:"restricted,omitempty"`
	// Self is the planned host.
	Self Self `json:"self"`
}

type Cluster struct {
	// PodCIDRs are the networks of the pods. Peers reach only the first one. None of them is masqueraded.
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
	// External is the network of the other addresses that peers can reach: nodes, gateways' probes, mappings.
	External netip.Prefix `json:"external"`
	// VXLANPort of the overlay between nodes and gateways; 0: DefaultVXLANPort.
	VXLANPort uint16 `json:"vxlanPort,omitempty"`
}

type Node struct {
	Name string `json:"name"`
	// Address is its internal address.
	Address netip.Addr `json:"address"`
	// PodCIDRs are the networks of its pods, if the cluster assigns any.
	PodCIDRs []netip.Prefix `json:"podCIDRs,omitempty"`
	// Pods are the addresses of its pods, for clusters whose nodes have no networks of their own.
	Pods []netip.Addr `json:"pods,omitempty"`
}

type Gateway struct {
	// Lane is its number, from 0.
	Lane int `json:"lane"`
	// Address of the pod.
	Address netip.Addr `json:"address"`
	// Node it runs on.
	Node string `json:"node"`
}

type Peer struct {
	ClusterID string `json:"clusterID"`
	Name      string `json:"name"`
	// Pods is the prefix under which this peer reaches our pods: From is ours, To is the peer's; equal if it does not remap us.
	Pods Swap `json:"pods"`
	// Shown: the prefix of Pods leads nowhere else here, so our pods reach each other there, too. Gateways ignore it.
	Shown bool `json:"shown,omitempty"`
	// External is the same for our external network.
	External Swap `json:"external"`
	// RemotePods is the prefix under which we reach its pods, RemoteExternal the one for its external network.
	RemotePods     netip.Prefix `json:"remotePods"`
	RemoteExternal netip.Prefix `json:"remoteExternal"`
	// Lanes of the peer, in the order of their numbers.
	Lanes []PeerLane `json:"lanes,omitempty"`
	// Reachable are the addresses of our pods that belong to the peering, if traffic is restricted. Nodes ignore them.
	Reachable []netip.Addr `json:"reachable,omitempty"`
	// MappingsOnly: it reaches mappings that name it, and nothing else of this cluster. Nodes ignore it: gateways drop the rest.
	MappingsOnly bool `json:"mappingsOnly,omitempty"`
	// Lane is the number of the lane that the node has chosen. Gateways ignore it.
	Lane int `json:"lane,omitempty"`
	// MTU is the largest packet that passed to this peer and back; 0 if not measured yet.
	MTU int `json:"mtu,omitempty"`
}

type PeerLane struct {
	Number int `json:"number"`
	// Keys of the peer's gateway, the one in use first. While a peer changes its key there are two.
	Keys []string `json:"keys"`
	// Endpoint is where it is dialled; invalid if the peer must dial.
	Endpoint netip.AddrPort `json:"endpoint"`
	// Dial is incremented to dial the same endpoint again.
	Dial int `json:"dial,omitempty"`
}

// Swap replaces one network by another of the same size, address by address.
type Swap struct {
	From netip.Prefix `json:"from"`
	To   netip.Prefix `json:"to"`
}

// Mapping makes one address reachable from peers as an address of our external network.
type Mapping struct {
	External netip.Addr `json:"external"`
	Target   netip.Addr `json:"target"`
	// ClusterIDs are the peers that may use the mapping; empty: all but guests (MappingsOnly).
	ClusterIDs []string `json:"clusterIDs,omitempty"`
	// Ports that peers reach; empty: all, of all protocols.
	Ports []MappingPort `json:"ports,omitempty"`
}

type MappingPort struct {
	// Protocol is "tcp" or "udp".
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
}

type Self struct {
	// Node is the name of the node; for a gateway, of its node.
	Node string `json:"node"`
	// Lane of the gateway; nodes ignore it.
	Lane int `json:"lane,omitempty"`
	// Address is the node's internal address, or the gateway pod's address.
	Address netip.Addr `json:"address"`
	// PodMTU is the MTU of the network that reaches gateway pods: of the pod's own link in a gateway, of the link towards
	// gateway pods on a node.
	PodMTU int `json:"podMTU"`
	// Uplink is the name of the pod's own link in a gateway (eth0); nodes have none.
	Uplink string `json:"uplink,omitempty"`
	// PublicKey of the gateway's tunnel.
	PublicKey string `json:"publicKey,omitempty"`
	// ListenPort of the gateway's tunnel.
	ListenPort int `json:"listenPort,omitempty"`
}
