// SPDX-License-Identifier: Apache-2.0

// Package agent keeps one host as it should be: something happens in the API server, in the kernel, to a probe, or a second goes by; then
// what is known becomes a snapshot, the snapshot a plan, and the plan is applied. The loop is the same for gateways and nodes; what differs,
// and which rights each has, is in the folders gateway and route.
//
// It writes no object, and it undoes nothing because somebody is silent: without an API server the last known state stays. It must not know
// netlink, nor what is in a plan. Its proof: a table of listed objects and their snapshots, the loop with a host of memory, and the
// caches against a real API server that goes away and comes back.
package agent
