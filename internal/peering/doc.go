// SPDX-License-Identifier: Apache-2.0

// Package peering holds the controllers of a peering. The ForeignCluster controller (foreigncluster_*.go) is the
// consumer's side: tenant, identity, connection and request. The peerkey controller (pins_controller.go) admits the
// consumers that registered. The ResourceSlice controller (resourceslice_*.go) is the provider's side: it grants
// resources to a consumer and keeps the grant current.
//
// The controllers decide when to act. Package grant and the *_status.go files decide what, as functions of values. Packages
// auth, tenant, replicate and plugin have the side effects. This package must not know what a consumer runs on the
// virtual node, nor how packets are routed. TestResourceSlice runs the provider's side against a real API server with
// exactly the rights of its markers.
package peering
