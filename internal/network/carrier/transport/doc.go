// SPDX-License-Identifier: Apache-2.0

// Package transport carries bytes to the gateway of a peer and cuts them into frames: TLS and WebSockets, directly or through a proxy, and what is
// read ahead of them.
//
// It must not know peers and their keys: who is at the other end is found out above. The proofs are proxied_test.go and ahead_test.go of the package carrier.
package transport
