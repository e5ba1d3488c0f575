// SPDX-License-Identifier: Apache-2.0

// Package liqo is the root of the repository and holds no code. Its tests check
// its conventions: where things are, what may import what, what a file
// looks like. ARCHITECTURE.md gives the reasons.
package liqo
