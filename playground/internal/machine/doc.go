// SPDX-License-Identifier: Apache-2.0

// Package machine runs one group of processes as if it were a computer of its own: own
// process numbers, mounts, host name and cgroups, inside a network namespace that is given.
//
// Launch makes the namespaces and starts this same program again as the machine's first
// process; Init is what that process does: it builds the root directory, starts the
// components of a spec.Machine, starts dead ones again, and answers on a control socket.
// Because it is process 1 of its process namespace, killing it ends everything inside, as
// pulling the plug would.
//
// The package decides nothing about Kubernetes: what runs is in the spec. Its proof is
// machine_test.go, which runs real machines (root only).
package machine
