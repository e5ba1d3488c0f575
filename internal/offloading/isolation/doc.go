// SPDX-License-Identifier: Apache-2.0

// Package isolation decides with whom the pods of a peer exchange packets: it returns the NetworkPolicy of each remote namespace. The policy admits the
// peering, DNS, clients from outside, and the public internet. It keeps the pods of a peer from nodes, metadata services, the pods and Services of this
// cluster, and other peers.
//
// The package is pure. It must not know how networks are agreed or who applies the policy. TestAttackNM4 and TestPolicy prove it with an evaluator of
// NetworkPolicies; no test shows it with packets yet, because the playground does not enforce NetworkPolicies.
package isolation
