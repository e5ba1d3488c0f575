// SPDX-License-Identifier: Apache-2.0

// Package liqo is the root of the repository and holds no code. Its tests are
// the laws of the house: where things are, what may import what, what a file
// looks like. ARCHITECTURE.md tells the reasons.
package liqo
