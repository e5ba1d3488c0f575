// SPDX-License-Identifier: Apache-2.0

// Package verdict is what this cluster's API server made of a write for a peer: why it refused it, in words that the peer may read, and which fields it
// dropped.
//
// It decides from values, and must not know when the write is tried again. Its tests prove it.
package verdict
