// SPDX-License-Identifier: Apache-2.0

// Package endpoints decides what a ShadowEndpointSlice becomes: which addresses of a peer are accepted, and which endpoints are pods of this cluster.
//
// The peer is hostile. It decides from values, and must not know when a slice is written. Its tests prove it.
package endpoints
