// SPDX-License-Identifier: Apache-2.0

// Package events notices that links, addresses, routes, rules or nftables have changed, by any program, without naming the change.
//
// It must not know what is wanted. The proof is apply_test.go of the package host.
package events
