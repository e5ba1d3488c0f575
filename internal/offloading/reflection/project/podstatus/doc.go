// SPDX-License-Identifier: Apache-2.0

// Package podstatus decides which status a local pod gets: that of its remote pod, or one that states why there is none. What comes back was written by a
// cluster that we do not trust: it is bounded, and never makes a local pod something that its spec is not.
//
// It must not know clients, caches or clocks, nor what was sent. Its tests are those of package project, and podtrim_test.go.
package podstatus
