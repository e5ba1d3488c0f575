// SPDX-License-Identifier: Apache-2.0

// Package apis is the root of the public Go API: a package per group and version, and the names of
// labels. It contains no code. TestSchema compares the generated manifests with the contract in
// testdata/contract.txt.
package apis
