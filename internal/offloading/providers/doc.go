// SPDX-License-Identifier: Apache-2.0

// Package providers reads the clusters that grant resources to this cluster, and what exists for them here: the virtual node, the NamespaceMap, the
// selector of their ForeignCluster.
//
// Package provider decides with what it reads. It must not know why a controller asks. The tests of the controllers that use it prove it.
package providers
