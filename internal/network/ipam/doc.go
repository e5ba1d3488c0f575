// SPDX-License-Identifier: Apache-2.0

// Package ipam decides which network stands for what: remap.go swaps prefixes, allocator.go finds networks that are free,
// addresses.go says which single addresses of the external network are whose.
//
// It knows no client and keeps nothing: an allocator is a value that is rebuilt by listing the objects that carry the
// assignments. Its proof is the property tests, against an oracle that tries every address.
package ipam
