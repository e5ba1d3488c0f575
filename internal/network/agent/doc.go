// SPDX-License-Identifier: Apache-2.0

// Package agent keeps one host in its planned state. An event of the API server, of the kernel or of a probe starts an iteration, and so
// does each second that passes without one: what is known becomes a snapshot, the snapshot a plan, and the host applies the plan. Gateways
// and nodes share the loop; what differs, and the rights of each, is in the folders gateway and route.
//
// The loop writes no object. It undoes nothing because a source is silent: without an API server the last known state stays. It must
// not know netlink, nor what is in a plan. Its proof: a table of listed objects and their snapshots, the loop with a host in memory, and
// the caches against a real API server that goes away and comes back.
package agent
