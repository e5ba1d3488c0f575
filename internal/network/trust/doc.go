// SPDX-License-Identifier: Apache-2.0

// Package trust decides whether what a peer wrote is believed, and signs what we announce. A NetworkConfig and the answer to it pass through API
// servers and through namespaces into which a peer may write. So each is signed by the cluster that it comes from, and the other believes only what
// the key signed that it pinned.
//
// It must not know the form of a signature (signature does) and what follows from distrust. The proof is trust_test.go.
package trust
