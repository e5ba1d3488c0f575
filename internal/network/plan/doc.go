// SPDX-License-Identifier: Apache-2.0

// Package plan computes the desired state of a host from a snapshot: ForNode for a node, ForGateway for a gateway pod. Read node.go,
// overlay.go, gateway.go, nat.go and wireguard.go in this order to follow a packet.
//
// The package knows no client, kernel, clock or logger. Its proof is testdata/*.txtar: a snapshot, and the state of each host as text.
package plan
