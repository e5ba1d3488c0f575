// SPDX-License-Identifier: Apache-2.0

// Package carrier carries the datagrams of WireGuard over a stream where UDP does not pass: over TLS, or over a WebSocket, also through HTTP proxies. What is
// inside stays WireGuard, so a proxy that ends the outer TLS sees and changes nothing; a stream is only a way.
//
// A [Hub] has at most one stream with each peer, dialled by either end, and gives it an address of the loopback network that follows from the peer's key. To
// WireGuard, a stream is the UDP endpoint with that address: in this process through [Bind], in the kernel through [Relay]. So WireGuard itself moves a
// tunnel from UDP to a stream and back, as it does when a peer has a new address, and no connection inside breaks.
//
// It must not know Kubernetes, and does not decide when a stream is used. The proof is carrier_test.go.
package carrier
