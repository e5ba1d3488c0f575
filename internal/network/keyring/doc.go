// SPDX-License-Identifier: Apache-2.0

// Package keyring is the content of the Secret with the keys of all gateways, and how they are rotated: current and next keys, and when the next ones
// count. Pure.
//
// It must not know who writes the Secret (keys does) and who reads it. The proof is keyring_test.go.
package keyring
