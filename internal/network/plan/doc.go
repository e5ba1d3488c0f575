// SPDX-License-Identifier: Apache-2.0

// Package plan answers what a host should look like, from a snapshot of what is known: ForNode for a node, ForGateway for a gateway pod.
// Reading node.go, overlay.go, gateway.go, nat.go and wireguard.go in this order is following a packet.
//
// It knows no client, no kernel, no clock and no logger. Its proof is testdata/*.txtar: a snapshot, and the state of each host as text.
package plan
