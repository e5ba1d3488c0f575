// SPDX-License-Identifier: Apache-2.0

// Package kernel has what all appliers of a host share: listings that the kernel interrupts, the addresses of its library, and the difference between
// what is wanted and what is there.
//
// It must not know any kind of object. The proof are the tests of the package host.
package kernel
