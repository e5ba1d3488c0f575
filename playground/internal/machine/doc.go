// SPDX-License-Identifier: Apache-2.0

// Package machine runs a group of processes like a computer of its own: with its own process
// numbers, mounts, host name and cgroups, in a network namespace that the caller provides.
//
// Launch makes the namespaces and starts this same program again as the machine's first
// process; Init is what that process does: it builds the root directory, starts the
// components of a spec.Machine, restarts those that end, and serves a control socket.
// Because it is process 1 of its process namespace, killing it ends everything inside, like
// a power failure.
//
// The package decides nothing about Kubernetes: what runs is in the spec. Its proof is
// machine_test.go, which runs real machines (as root only).
package machine
