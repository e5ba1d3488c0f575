// SPDX-License-Identifier: Apache-2.0

// Package network is how a packet crosses: who tells whom which networks it has (NetworkConfig), what was agreed with a peer
// (TunnelEndpoint), and which single addresses are reachable besides (IPMapping). The controllers here speak to the API server
// only; what a host looks like is decided in plan, made in host, kept by agent and measured by probe.
//
//	rome, node n2                        rome, gateway pod of lane 0            milan, gateway pod of lane 0          milan, node m1
//	pod 10.10.1.5 ── veth                                                                                               veth ── pod 10.10.2.7
//	  rule: to 10.30.0.0/16, table 18952                                                                                 ▲
//	  liqo.vxlan ═══ UDP 4879 ═══════════▶ liqo.vxlan                                                liqo.vxlan ═══════▶ liqo.vxlan
//	                                        liqo.tunnel ═══ WireGuard, UDP 5871 ═══▶ liqo.tunnel
//	                                        source 10.10.1.5 ▶ 10.40.1.5             destination 10.30.2.7 ▶ 10.10.2.7
//
// Each cluster translates only itself: its own source when a packet leaves, its own destination when one enters. A lane is one
// gateway pod in each cluster and the tunnel between exactly these two. Nodes probe every lane from end to end and choose for
// themselves (docs/adr/0013-network-fabric.md).
//
// It must not know how an object comes from one cluster to the other (peering/replicate does that), nor what runs on the nodes.
// The proof is test/network: real clusters, every way that a packet can take, and faults.
package network
