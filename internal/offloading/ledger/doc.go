// SPDX-License-Identifier: Apache-2.0

// Package ledger counts what each peer has in this cluster, in all its namespaces together: objects of each kind, their bytes, node ports, load balancers,
// claims and their storage, and how many bytes it writes in a time ([ADR 34]). What its pods may request is counted in package quota, because a grant bounds
// that, and no value.
//
// The package must not know an API server or a clock: its caller states what is there, what a peer wants to write, and when. It is proved by the tables of
// ledger_test.go and use_test.go, in which peers try to get more than their bounds.
//
// [ADR 34]: ../../../docs/adr/0034-one-ledger.md
package ledger
