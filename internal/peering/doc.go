// SPDX-License-Identifier: Apache-2.0

// Package peering holds the control loops of a peering: who the other cluster is, whether it may act, and what the two
// agreed. The consumer's side is the ForeignCluster (foreigncluster_*.go: tenant, identity, connection, request), the
// provider's side is the copy of the consumer's ResourceSlice (resourceslice_*.go: what it may use, kept current).
//
// The loops decide when; package grant and the *_status.go files decide what, from values; auth, tenant, replicate and
// plugin reach out. The package must not know what a consumer runs on the virtual node, nor how packets find their
// way. TestResourceSlice runs the provider's side against a real API server with the rights of its markers only.
package peering
