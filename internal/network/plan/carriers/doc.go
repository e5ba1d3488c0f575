// SPDX-License-Identifier: Apache-2.0

// Package carriers decides, for one peer of a gateway, where WireGuard sends and what carries its packets: where and when the peer is dialled, when a
// stream is opened or dropped, and when a tunnel over a stream tries UDP and moves there. A gateway observes, asks here, and does what is decided.
//
// It must not know sockets, streams and the clock: it gets addresses and times. The proofs are dial_test.go, dial_pair_test.go and carriers_test.go.
package carriers
