// SPDX-License-Identifier: Apache-2.0

// Package tunnelendpoint agrees with each peer on networks: it answers the peer's claim, writes the TunnelEndpoint when both have answered, and
// reports how the tunnel works.
//
// It must not know what nodes do with a TunnelEndpoint. The proofs are TestAgreement, TestConnection and the attacks of the package network.
package tunnelendpoint
