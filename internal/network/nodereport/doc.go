// SPDX-License-Identifier: Apache-2.0

// Package nodereport deletes the reports of nodes that are gone. What agents report about their nodes is in a NodeReport each.
//
// It must not know what a report is used for. The proof is TestAttackNC1Nodes of the package network.
package nodereport
