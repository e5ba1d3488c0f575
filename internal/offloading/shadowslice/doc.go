// SPDX-License-Identifier: Apache-2.0

// Package shadowslice creates the EndpointSlices of peers in remote namespaces, one for each ShadowEndpointSlice.
//
// Package shadow decides what each becomes; pods.go finds those endpoints that are pods of this cluster. The peer is hostile: its endpoints lie in its own
// networks, or are its own pods. Its tests prove it against real API servers.
package shadowslice
