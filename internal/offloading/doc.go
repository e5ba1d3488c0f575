// SPDX-License-Identifier: Apache-2.0

// Package offloading runs workloads on the resources that a provider grants.
//
// As a consumer, it deploys a virtual kubelet for each granted ResourceSlice, and drains and removes its virtual node when the peering
// ends. It also extends namespaces: a NamespaceOffloading selects clusters, one NamespaceMap per provider lists all namespaces offloaded
// to it, and the provider creates a remote namespace for each entry. As a provider, it creates these remote namespaces, and in them the pods
// and endpoint slices of the peer.
//
//	virtualnode_*.go, deployment.go, drain.go   the virtual node
//	namespaceoffloading_*.go                    one offloaded namespace: its label, the rights of virtual kubelets in it, its status
//	namespacemap_controller.go                  the desired remote namespaces at each provider; the only writer
//	remotenamespaces_*.go                       the provider: creates and deletes the remote namespaces of its consumers
//	contents_controller.go                      what remote namespaces hold, for commands that give them up; package contents counts
//	namespace_plan.go                           names of remote namespaces, selection of clusters, what a consumer may have
//	shadowpod_*.go, shadowendpointslice_*.go    the pods and endpoints of peers in remote namespaces; package shadow decides
//	remotenamespaces_index.go                   which peer a remote namespace belongs to
//
// Files called _plan and _status, and deployment.go, decide from values; the other files carry the decisions out. The package must not
// know how a peer authenticates, nor how slices and maps reach the other cluster. It is proved by the tests of its controllers against real
// API servers; peers_test.go runs them with two.
package offloading
