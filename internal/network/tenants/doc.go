// SPDX-License-Identifier: Apache-2.0

// Package tenants finds the peers of this cluster, their tenant namespaces and the two NetworkConfigs in each: ours, and the copy of the peer's.
//
// It must not know what is in these. The proofs are TestOtherConfigsAreIgnored and TestAttackSameName of the package network.
package tenants
