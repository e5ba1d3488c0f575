// SPDX-License-Identifier: Apache-2.0

// Package invitation is what a provider prints for a consumer when no administrator has access to both clusters, and the way from that consumer to the provider
// until the clusters have a tunnel: WireGuard in this process, with a key that the provider made for this one purpose (docs/adr/0022-in-band.md).
//
// It knows nothing of Kubernetes. invitation_test.go connects two ends over real sockets, and a fuzz test covers the text, which users paste.
package invitation
