// SPDX-License-Identifier: Apache-2.0

// Package endpoint finds where the gateways of this cluster can be reached, from their Services, and which hosts may be announced as an address of a gateway.
//
// It must not know peers, and reads nothing itself. The proof is endpoint_test.go.
package endpoint
