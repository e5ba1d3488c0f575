// SPDX-License-Identifier: Apache-2.0

// Package offloading lets workloads use what a provider grants. So far it keeps the virtual node of each granted
// ResourceSlice: it runs the virtual kubelet, and drains and removes the node when the peering ends.
// virtualnode_plan.go and deployment.go decide from values; the controller and drain.go do what they say.
//
// It must not know how a peer is authenticated, nor how slices travel. Its proof is virtualnode_controller_test.go,
// against a real API server.
package offloading
