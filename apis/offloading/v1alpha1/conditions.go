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
	// ReasonClusterSelected: the cluster selector chooses this cluster.
	ReasonClusterSelected = "ClusterSelected"
	// ReasonClusterNotSelected: the cluster selector does not choose this cluster.
	ReasonClusterNotSelected = "ClusterNotSelected"
	// ReasonNamespaceCreated: the remote namespace exists.
	ReasonNamespaceCreated = "NamespaceCreated"
	// ReasonCreationLoopBackOff: the remote namespace cannot be created, and is tried again; the message names what prevents it.
	ReasonCreationLoopBackOff = "CreationLoopBackOff"
	// ReasonTerminating: the remote namespace is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonCreating: the remote namespace is not there yet.
	ReasonCreating = "Creating"
)
