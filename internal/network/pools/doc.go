// SPDX-License-Identifier: Apache-2.0

// Package pools rebuilds, from the objects that record them, which networks are in use, which are assigned to peers, and what administrators wrote
// about the networks of peers. The arithmetic is in ipam.
//
// It must not know what a peer claims at present. The proofs are TestLiterals and TestWrittenDown of the package network.
package pools
