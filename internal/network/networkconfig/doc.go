// SPDX-License-Identifier: Apache-2.0

// Package networkconfig announces the network of this cluster to each peer: it publishes a signed NetworkConfig, withdraws it, and reports whether
// the peer's answer counts.
//
// It must not know what peers announce, nor how the object reaches them. The proofs are TestAgreement and TestAttackFlappingRefusal of the package network.
package networkconfig
