// SPDX-License-Identifier: Apache-2.0

// Package probe measures whether packets pass, by sending some: from each gateway to the gateway of the same lane at each peer, and
// from each node through every lane from end to end. monitor.go judges one such target, lanes.go chooses among the lanes, path.go
// searches for the largest packet that passes; these three are pure. prober.go sends and receives, echo.go limits the answers, and
// observations.go keeps what the nodes report to a gateway.
//
// The package must not know what its caller does with a result, nor any Kubernetes object. Its proof: tables for the pure parts, a fuzz
// test for packets from unauthenticated senders, and two probers on real sockets for the rest.
package probe
