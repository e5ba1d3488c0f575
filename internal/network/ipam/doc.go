// SPDX-License-Identifier: Apache-2.0

// Package ipam assigns networks and addresses: remap.go swaps prefixes, allocator.go finds free networks, addresses.go divides the
// external network among probes, nodes and mappings.
//
// The package knows no client and stores nothing: an allocator is a value that is rebuilt by listing the objects that carry the
// assignments. Its proof is the property tests, against an oracle that tries every address.
package ipam
