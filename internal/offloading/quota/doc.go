// SPDX-License-Identifier: Apache-2.0

// Package quota counts, for each peer, what its pods take of what it is granted: ledger.go keeps the sums, amounts.go knows what one pod takes, and defaults.go
// what a container and a memory volume take that state less ([ADR 34]).
//
// The package is pure. It must not know an API server or a clock: its caller states which grants and ShadowPods there are. Peers write ShadowPods, so
// nothing in them is trusted. It is proved by the tables and histories in its tests, and by those of the webhook that asks it.
//
// [ADR 34]: ../../../docs/adr/0034-one-ledger.md
package quota
