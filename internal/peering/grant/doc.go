// SPDX-License-Identifier: Apache-2.0

// Package grant computes what this cluster lets a peer use: what the Ready physical nodes can carry, minus
// what runs on them for anybody but that peer, times the sharing percentage.
//
// It counts, rounds and compares, from values; it knows no client, no clock and no logger, and not what a
// ResourceSlice is. FuzzShare and FuzzLedger hold the arithmetic: the ledger, fed event by event, always
// says what a count from nothing says, and no grant is negative or more than there is.
package grant
