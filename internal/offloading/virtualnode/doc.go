// SPDX-License-Identifier: Apache-2.0

// Package virtualnode deploys a virtual kubelet for each granted ResourceSlice, and drains and removes its virtual node when the peering ends.
//
//	plan.go                    the next step, from values
//	controller.go, events.go   wiring, and which event concerns which slice
//	drain.go                   evictions, deadlines, and the end of the node
//
// It must not know how slices reach the other cluster. It is proved by its tests against real API servers.
package virtualnode
