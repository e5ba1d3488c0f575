// SPDX-License-Identifier: Apache-2.0

// Package probe tells whether packets pass, by sending some: from each gateway to the gateway of the same lane at each peer, and
// from each node through every lane from end to end. leg.go judges one such way, lanes.go chooses among several, path.go searches
// the largest packet that passes; these three are pure. prober.go sends and hears, echo.go answers.
//
// It must not know what is done about a result, nor any object of Kubernetes. Its proof: tables for what is pure, a fuzz test for what
// strangers send, and two probers on real sockets for the rest.
package probe
