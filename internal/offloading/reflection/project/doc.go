// SPDX-License-Identifier: Apache-2.0

// Package project says what of an object crosses to a peer, and what of a peer's pod is believed here: a file per kind, a function per
// direction. All of it is decided from the arguments alone, so that the same object always gives the same intent.
//
// What goes to the peer is an apply configuration with every field that is ours; nil means that nothing is to be there. What comes
// back was written by somebody who is not trusted: it is bounded, and never makes a local pod something its spec is not.
//
// The package must not know clients, caches, clocks, nor when it is called. Its proof is fields_test.go, which holds the fate of every
// field of every kind and fails on fields that Kubernetes adds, the golden files in testdata, accepted_test.go, which shows the results to
// a real API server, and the fuzz tests of both directions.
package project
