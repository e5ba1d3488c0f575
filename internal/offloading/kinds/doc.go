// SPDX-License-Identifier: Apache-2.0

// Package kinds has a file for each kind of Kubernetes that reaches a peer: its names in both clusters, what the peer gets of an object, and what every part of
// Liqo has to know of the kind. Reflection, the ledger of peers, remote namespaces, contents and events go through the rows, and name no kind themselves.
//
// To add a kind, write its file here, with its projection, and a golden file of it in reflection/project/testdata; then make generate.
// Without Rights and a Guard a peer may do everything with the kind in its remote namespaces. One of which Liqo keeps objects there, as NetworkPolicy,
// needs a kind of ours at the provider, as pods have.
//
// It must not know clients, caches or clocks, nor who asks. kinds_test.go holds each row to what the others need of it; TestGolden, TestAccepted and TestFields
// of package project prove the projections.
package kinds
