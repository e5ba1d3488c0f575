// SPDX-License-Identifier: Apache-2.0

// Package pages is what the port of a kubelet shows to its usual readers, for a virtual node: the pods of the node, its own metrics, its configuration, and who
// may read what. Prometheus, collectors and administrators read it, and alerts of common rules are about it.
//
// It knows values only: no provider, no client and no clock. pages_test.go proves it, and TestPages of package virtualkubelet proves it behind a port.
package pages
