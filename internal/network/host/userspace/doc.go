// SPDX-License-Identifier: Apache-2.0

// Package userspace runs WireGuard in this process, for kernels without it: a device of the library, with a bound on the memory of its packets.
//
// It must not know what is configured: that comes through the control socket of its name. The proof is limit_test.go.
package userspace
