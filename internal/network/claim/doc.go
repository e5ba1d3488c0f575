// SPDX-License-Identifier: Apache-2.0

// Package claim validates what a peer announces: its networks, its lanes and where its gateways are, and its answer to what we announce. The peer is
// hostile, so nothing else of what it wrote is used.
//
// It must not know other peers, nor what this cluster assigned: a valid claim may still conflict with those. The proof is claim_test.go.
package claim
