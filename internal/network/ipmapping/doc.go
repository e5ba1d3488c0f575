// SPDX-License-Identifier: Apache-2.0

// Package ipmapping assigns an address in the external network to each IPMapping, under which peers reach it.
//
// It must not know how packets are translated. The proof is TestMappings of the package network.
package ipmapping
