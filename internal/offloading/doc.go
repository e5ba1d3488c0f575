// SPDX-License-Identifier: Apache-2.0

// Package offloading lets workloads use what a provider grants. It keeps the virtual node of each granted ResourceSlice: it runs the virtual
// kubelet, and drains and removes the node when the peering ends. And it extends namespaces to other clusters: a NamespaceOffloading says
// which, a NamespaceMap per provider carries all of them, and the provider makes a twin for each entry. As a provider, it makes pods and
// endpoint slices of what peers wish for in those twins.
//
//	virtualnode_*.go, deployment.go, drain.go   the virtual node
//	namespaceoffloading_*.go                    one offloaded namespace: its mark, the rights of virtual kubelets in it, what it says of itself
//	namespacemap_controller.go                  what each provider is asked for; the only writer
//	twins_*.go                                  the other side: what consumers ask for here
//	namespace_plan.go                           names of twins, who is chosen, what a consumer may have
//	shadowpod_*.go, shadowendpointslice_*.go    what peers run in twins; package shadow decides
//	twin_peers.go                               whose twin a namespace is
//
// Files called _plan and _status, and deployment.go, decide from values; the others do what they say. It must not know how a peer is
// authenticated, nor how slices and maps travel. Its proofs are the tests of its controllers, against real API servers, and pair_test.go with two.
package offloading
