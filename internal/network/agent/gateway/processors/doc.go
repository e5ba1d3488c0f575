// SPDX-License-Identifier: Apache-2.0

// Package processors decides on how many processors a gateway runs whose WireGuard is in its own process.
//
// It must not know what the process does, only how busy it is. The proof is processors_test.go.
package processors
