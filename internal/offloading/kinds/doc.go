// SPDX-License-Identifier: Apache-2.0

// Package kinds has a file for each kind of Kubernetes that reaches a peer: its names in both clusters, and what every part of Liqo has to know of it. Reflection, the
// ledger of peers, remote namespaces, contents and events go through the rows, and name no kind themselves.
//
// It must not know clients, caches or clocks, nor who asks. kinds_test.go holds each row to what the others need of it.
package kinds
