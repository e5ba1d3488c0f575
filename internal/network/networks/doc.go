// SPDX-License-Identifier: Apache-2.0

// Package networks reads and writes the network fields of the API: a network, and the prefix under which the other cluster reaches it. Pure.
//
// It must not know who may state what. The proof is networks_test.go.
package networks
