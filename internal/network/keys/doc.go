// SPDX-License-Identifier: Apache-2.0

// Package keys creates the keys of the gateways, and rotates them when an annotation asks for it.
//
// It must not know the form of the Secret: that is the keyring. The proof is TestKeys of the package network.
package keys
