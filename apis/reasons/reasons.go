// SPDX-License-Identifier: Apache-2.0

// Package reasons names the events that Liqo writes: users, and their alerts, select them by reason. Reasons that are also those of conditions are beside the
// kinds. docs/reference/events.md is made of the comments, and TestEventsAreReasons keeps other reasons out of other packages.
package reasons

// Events about the trust in a peer, on its ForeignCluster. The metric liqo_peer_trust_events_total counts them by reason.
const (
	// PeerAdmitted, on the ConfigMap of the key: a cluster has registered.
	PeerAdmitted = "PeerAdmitted"
	// PeerRefused, on the ConfigMap of the key: a cluster was refused, because its token is used up, its ID is that of another cluster, or there are too many.
	PeerRefused = "PeerRefused"
	// PeerAccepted: the cluster may use this one.
	PeerAccepted = "PeerAccepted"
	// PeerWaiting: the cluster gets nothing until an administrator decides.
	PeerWaiting = "PeerWaiting"
	// PeerWithdrawing: the cluster may not use this one any more, and has time to take its pods away.
	PeerWithdrawing = "PeerWithdrawing"
	// PeerDenied: the cluster may not use this one.
	PeerDenied = "PeerDenied"
	// PeerKeyReplaced: the peer has replaced its keys, and proven it.
	PeerKeyReplaced = "PeerKeyReplaced"
	// PeerKeyNotReplaced: the peer asked to replace its keys, and has not proven that it may.
	PeerKeyNotReplaced = "PeerKeyNotReplaced"
	// ProviderMoved: a signed grant names another API server.
	ProviderMoved = "ProviderMoved"
	// ProviderCAChanged: a signed grant names another certificate authority of the API server.
	ProviderCAChanged = "ProviderCAChanged"
	// IdentityRenewed: this cluster has a valid identity again, after it had expired.
	IdentityRenewed = "IdentityRenewed"
	// IdentityRenewedInside: the identity was renewed through the tunnel, and not by the way before; the event names what was seen.
	IdentityRenewedInside = "IdentityRenewedInside"
	// ProviderUnproven: the same, because the service at the address of the provider does not prove that it has the provider's key.
	ProviderUnproven = "ProviderUnproven"
)

// Other events on ForeignClusters, and on what is sent to peers.
const (
	// CopyMayBeLeft: an object is deleted here, and the peer did not answer in time, so its copy may be left there.
	CopyMayBeLeft = "CopyMayBeLeft"
	// NetworkConfigIgnored: the peer has written a NetworkConfig of another name than the one that is read.
	NetworkConfigIgnored = "NetworkConfigIgnored"
)

// Events about virtual nodes, on their ResourceSlices.
const (
	// VkCreated: the Deployment of the virtual kubelet was created.
	VkCreated = "VkCreated"
	// VkDeleted: the Deployment of the virtual kubelet was deleted.
	VkDeleted = "VkDeleted"
	// PullSecretUnusable, on the Deployment of a virtual kubelet: a Secret of the value imagePullSecrets does not exist, or is not one for pulling images.
	PullSecretUnusable = "PullSecretUnusable"
	// DrainDeadline: pods did not leave the node in time and were deleted.
	DrainDeadline = "DrainDeadline"
)

// Events on NamespaceOffloadings.
const (
	// Invalid: the spec asks for what cannot be.
	Invalid = "Invalid"
	// LabelsNotAccepted: the cluster selector would choose a cluster by labels that this cluster has not accepted of it.
	LabelsNotAccepted = "LabelsNotAccepted"
	// RemoteNamespaceMayBeLeft: the offloading ended, and a cluster did not confirm that its remote namespace is gone.
	RemoteNamespaceMayBeLeft = "RemoteNamespaceMayBeLeft"
)

// Events on the objects of an offloaded namespace, about their copies in a peer.
const (
	// SuccessfulReflection: the object is in the peer for the first time.
	SuccessfulReflection = "SuccessfulReflection"
	// FailedReflection: the object, or its last change, is not in the peer; the event names what refuses it.
	FailedReflection = "FailedReflection"
	// FailedDeletion: the copy cannot be deleted in the peer.
	FailedDeletion = "FailedDeletion"
	// FailedSATokensReflection: the pod has no token of its service account in the peer.
	FailedSATokensReflection = "FailedSATokensReflection"
	// ReflectionIncomplete: the object is in the peer without a part that was asked for.
	ReflectionIncomplete = "ReflectionIncomplete"
	// PodsFailInALoop: pods of one owner fail in the peer again and again, so new ones wait.
	PodsFailInALoop = "PodsFailInALoop"
	// PredecessorEnding: an earlier pod of that name still ends in the peer.
	PredecessorEnding = "PredecessorEnding"
	// RemotePodStuck: the pod in the peer cannot go on, and is replaced.
	RemotePodStuck = "RemotePodStuck"
	// DataNotAvailable: the data of a claim is at the provider, and cannot be used now.
	DataNotAvailable = "DataNotAvailable"
)

// Events on ShadowPods and ShadowEndpointSlices, in the cluster that runs the pods; consumers see them on their own objects.
const (
	// NameTaken: the namespace has another object of that name, which is not touched.
	NameTaken = "NameTaken"
	// Refused: this cluster does not run such a pod; the event names the rule.
	Refused = "Refused"
	// FailedCreate: the pod cannot be created.
	FailedCreate = "FailedCreate"
	// FailedUpdate: the pod cannot be changed.
	FailedUpdate = "FailedUpdate"
	// ForeignAddresses: the slice has addresses that are not the peer's, and are left out.
	ForeignAddresses = "ForeignAddresses"
	// FailedApply: the slice cannot be written.
	FailedApply = "FailedApply"
)

// Events about Ingresses and volumes of this cluster.
const (
	// HostOfPeer, on an Ingress: a peer has an Ingress of the same host, and may get requests for it.
	HostOfPeer = "HostOfPeer"
	// ClaimStaysHere, on a claim and its pods: the claim is bound to this cluster, so its pods cannot run on a virtual node.
	ClaimStaysHere = "ClaimStaysHere"
	// ProvisioningFailed, on a claim: no volume can be made for it.
	ProvisioningFailed = "ProvisioningFailed"
	// VolumeResizeFailed, on a claim: its volume cannot grow.
	VolumeResizeFailed = "VolumeResizeFailed"
)
