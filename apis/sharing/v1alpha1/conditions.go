// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a ResourceSlice. Each has one writer.
const (
	// ConditionGranted is written by the provider: True while resources are granted.
	ConditionGranted = "Granted"
	// ConditionNodeReady is written by the consumer: the state of the virtual node of this slice.
	ConditionNodeReady = "NodeReady"
)

// Reasons of ConditionGranted.
const (
	// ReasonResourcesGranted: the provider grants resources.
	ReasonResourcesGranted = "ResourcesGranted"
	// ReasonIncomingDisabled: the provider's administrator does not allow this peer to use the cluster.
	ReasonIncomingDisabled = "IncomingPeeringDisabled"
	// ReasonIncomingWaiting: the provider's administrator has to decide whether this peer may use the cluster.
	ReasonIncomingWaiting = "IncomingPeeringWaiting"
	// ReasonProviderWithdrawing: the provider is ending the peering.
	ReasonProviderWithdrawing = "ProviderWithdrawing"
	// ReasonNothingToShare: no Ready node has anything left.
	ReasonNothingToShare = "NothingToShare"
	// ReasonTooManySlices: the consumer has as many older requests as a provider grants.
	ReasonTooManySlices = "TooManySlices"
	// ReasonPluginFailed: the resource plugin gave no answer.
	ReasonPluginFailed = "ResourcePluginFailed"
)

// Reasons of ConditionNodeReady.
const (
	// ReasonVirtualKubeletStarting: the Deployment of the virtual kubelet exists, its node does not exist yet.
	ReasonVirtualKubeletStarting = "VirtualKubeletStarting"
	// ReasonNodeReady: the virtual node is Ready.
	ReasonNodeReady = "NodeReady"
	// ReasonNodeNotReady: the virtual node is not Ready; the message names what it waits for.
	ReasonNodeNotReady = "NodeNotReady"
	// ReasonNodeDraining: the pods of the virtual node are leaving it, because it is to be deleted.
	ReasonNodeDraining = "NodeDraining"
)
