// SPDX-License-Identifier: Apache-2.0

// Package spread moves a gateway away from a node that has several, when another node is free and all lanes work.
//
// It must not know why Kubernetes placed them so. The proofs are spread_test.go, and TestSpread of the package network.
package spread
