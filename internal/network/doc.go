// SPDX-License-Identifier: Apache-2.0

// Package network connects the pods of peers. A NetworkConfig announces the networks of a cluster to a peer, a TunnelEndpoint records the
// agreement with a peer, and an IPMapping makes a single further address reachable. The controllers here talk to the API server
// only; plan decides the state of a host, host applies it, agent keeps it, and probe measures it.
//
//	rome, node n2                        rome, gateway pod of lane 0            milan, gateway pod of lane 0          milan, node m1
//	pod 10.10.1.5 ── veth                                                                                               veth ── pod 10.10.2.7
//	  rule: to 10.30.0.0/16, table 18952                                                                                 ▲
//	  liqo.vxlan ═══ UDP 4879 ═══════════▶ liqo.vxlan                                                liqo.vxlan ═══════▶ liqo.vxlan
//	                                        liqo.tunnel ═══ WireGuard, UDP 5871 ═══▶ liqo.tunnel
//	                                        source 10.10.1.5 ▶ 10.40.1.5             destination 10.30.2.7 ▶ 10.10.2.7
//
// Each cluster translates only its own addresses: the source when a packet leaves, the destination when one enters. A lane is one
// gateway pod in each cluster and the tunnel between exactly these two. Each node probes every lane from end to end and chooses its own
// (docs/adr/0013-network-fabric.md).
//
// The package must not know how an object reaches the other cluster (peering/replicate does that), nor what runs on the nodes.
// Its proof is test/network: real clusters, every path of a packet, and faults.
package network
