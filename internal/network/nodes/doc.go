// SPDX-License-Identifier: Apache-2.0

// Package nodes lists which nodes count for the network: real ones, and which of their changes matter.
//
// It must not know gateways and peers. Its users prove it: endpoint and spread.
package nodes
