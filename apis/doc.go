// SPDX-License-Identifier: Apache-2.0

// Package apis is the folder of the public Go API: a package per group and version, and the names of
// labels. It holds nothing itself. TestSchema compares the generated manifests with the promises
// in testdata/contract.txt.
package apis
