// SPDX-License-Identifier: Apache-2.0

// Package grant computes what this cluster lets a peer use: the allocatable resources of the Ready physical nodes, minus
// the requests of all pods except the peer's own, times the sharing percentage.
//
// It counts, rounds and compares values. It must not use a client, a clock or a logger, nor know what a ResourceSlice
// is. The proofs are FuzzLedger (the ledger, updated event by event, equals a count from scratch) and FuzzShare (no grant
// is negative, or more than there is).
package grant
