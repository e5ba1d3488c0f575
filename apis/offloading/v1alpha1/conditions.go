// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a remote namespace.
const (
	// ConditionOffloadingRequired: the cluster selector chooses this cluster.
	ConditionOffloadingRequired = "OffloadingRequired"
	// ConditionReady: the namespace exists in the remote cluster and is ours.
	ConditionReady = "Ready"
)

// Reasons of these conditions.
const (
	ReasonClusterSelected     = "ClusterSelected"
	ReasonClusterNotSelected  = "ClusterNotSelected"
	ReasonNamespaceCreated    = "NamespaceCreated"
	ReasonCreationLoopBackOff = "CreationLoopBackOff"
	ReasonTerminating         = "Terminating"
	ReasonCreating            = "Creating"
)
