// SPDX-License-Identifier: Apache-2.0

// Package tunnelstatus makes the status of a TunnelEndpoint from what gateways report: which lanes are up, which nodes are cut off, and since when. Pure.
//
// It must not know clients and the clock. The proof is status_test.go.
package tunnelstatus
