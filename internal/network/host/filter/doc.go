// SPDX-License-Identifier: Apache-2.0

// Package filter writes our table of nftables: the rules of a plan as expressions of the kernel, in one transaction; and it reads what is there, as a
// text to compare.
//
// It must not know what a rule is for. The proofs are fuzz_test.go, which runs the expressions, and nft_test.go of the package host.
package filter
