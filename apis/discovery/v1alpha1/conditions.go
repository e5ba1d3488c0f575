// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// PeeringConditionType names one aspect of a peering.
// +kubebuilder:validation:Enum=OutgoingPeering;IncomingPeering;NetworkStatus;APIServerStatus;AuthenticationStatus;ProcessForeignClusterStatus
type PeeringConditionType string

// The aspects of a peering.
const (
	// OutgoingPeering: whether this cluster uses resources of the remote one.
	OutgoingPeering PeeringConditionType = "OutgoingPeering"
	// IncomingPeering: whether the remote cluster uses resources of this one.
	IncomingPeering PeeringConditionType = "IncomingPeering"
	// NetworkStatus: whether the tunnel between the clusters works.
	NetworkStatus PeeringConditionType = "NetworkStatus"
	// APIServerStatus: whether the API server of the remote cluster answers.
	APIServerStatus PeeringConditionType = "APIServerStatus"
	// AuthenticationStatus: whether each cluster accepts the identity of the other, as far as it needs one.
	AuthenticationStatus PeeringConditionType = "AuthenticationStatus"
	// ProcessForeignClusterStatus reports whether the spec of the ForeignCluster is valid.
	ProcessForeignClusterStatus PeeringConditionType = "ProcessForeignClusterStatus"
)

// PeeringConditionStatus is the state of one aspect.
// +kubebuilder:validation:Enum=None;Pending;Established;Disconnecting;Denied;EmptyDenied;Error;Success;External
type PeeringConditionStatus string

// The states of an aspect.
const (
	StatusNone          PeeringConditionStatus = "None"
	StatusPending       PeeringConditionStatus = "Pending"
	StatusEstablished   PeeringConditionStatus = "Established"
	StatusDisconnecting PeeringConditionStatus = "Disconnecting"
	StatusDenied        PeeringConditionStatus = "Denied"
	StatusEmptyDenied   PeeringConditionStatus = "EmptyDenied"
	StatusError         PeeringConditionStatus = "Error"
	StatusSuccess       PeeringConditionStatus = "Success"
	StatusExternal      PeeringConditionStatus = "External"
)

// Reasons of OutgoingPeering and IncomingPeering.
const (
	// ReasonNoResourceRequest: no resources are wanted (status None).
	ReasonNoResourceRequest = "NoResourceRequest"
	// ReasonResourceRequestPending: the request is not written or not answered yet (status Pending).
	ReasonResourceRequestPending = "ResourceRequestPending"
	// ReasonKubeletPending: resources are granted, and the virtual kubelet is not there yet (status Pending).
	ReasonKubeletPending = "KubeletPending"
	// ReasonResourceRequestAccepted: resources are granted (status Established).
	ReasonResourceRequestAccepted = "ResourceRequestAccepted"
	// ReasonResourceRequestDeleting: the request is being withdrawn (status Disconnecting).
	ReasonResourceRequestDeleting = "ResourceRequestDeleting"
	// ReasonResourceRequestRefused: the provider does not share with this cluster (status Denied).
	ReasonResourceRequestRefused = "ResourceRequestRefused"
	// ReasonIncomingWaiting: an administrator has to decide whether the remote cluster may use this one (status Pending).
	ReasonIncomingWaiting = "IncomingPeeringWaiting"
	// ReasonIncomingWithdrawing: the remote cluster may not use this one any more, and its pods have time to leave (status Disconnecting).
	ReasonIncomingWithdrawing = "IncomingPeeringWithdrawing"
	// ReasonIncomingRefused: this cluster does not let the remote one use it (status Denied).
	ReasonIncomingRefused = "IncomingPeeringRefused"
)

// Reasons of NetworkStatus.
const (
	// ReasonTunnelEndpointNotFound: no tunnel is agreed yet; the message names what is missing (status None).
	ReasonTunnelEndpointNotFound = "TunnelEndpointNotFound"
	// ReasonTunnelEndpointConnecting: the gateways have not connected yet (status Pending).
	ReasonTunnelEndpointConnecting = "TunnelEndpointConnecting"
	// ReasonTunnelEndpointAvailable: the tunnel works (status Established).
	ReasonTunnelEndpointAvailable = "TunnelEndpointAvailable"
	// ReasonTunnelEndpointError: the tunnel does not work (status Error).
	ReasonTunnelEndpointError = "TunnelEndpointError"
	// ReasonExternalNetwork: another program connects the networks, because the one of Liqo is off (status External).
	ReasonExternalNetwork = "ExternalNetwork"
)

// Reasons of APIServerStatus. With no identity yet, the status is None.
const (
	// ReasonAPIServerReady: it answers (status Established).
	ReasonAPIServerReady = "APIServerReady"
	// ReasonAPIServerNotReady: it does not answer, or was not asked yet (status Error or Pending).
	ReasonAPIServerNotReady = "APIServerNotReady"
	// ReasonAPIServerNotNeeded: this cluster has no identity there, so it does not connect (status None).
	ReasonAPIServerNotNeeded = "APIServerNotNeeded"
)

// Reasons of AuthenticationStatus.
const (
	// ReasonIdentityAccepted: the identity is accepted (status Established).
	ReasonIdentityAccepted = "IdentityAccepted"
	// ReasonIdentityEmptyDenied: the provider wants a token, and this cluster has none (status EmptyDenied).
	ReasonIdentityEmptyDenied = "IdentityEmptyDenied"
	// ReasonIdentityDenied: the provider refuses the token or the key of this cluster (status Denied).
	ReasonIdentityDenied = "IdentityDenied"
	// ReasonProviderUnproven: what answers does not prove that it is the provider (status Error).
	ReasonProviderUnproven = "ProviderUnproven"
	// ReasonIdentityError: the identity cannot be requested; the message names what failed (status Error).
	ReasonIdentityError = "IdentityError"
	// ReasonAuthNotReachable: the authentication service of the provider cannot be reached (status Error).
	ReasonAuthNotReachable = "AuthNotReachable"
	// ReasonIdentityPending: first contact is under way (status Pending).
	ReasonIdentityPending = "IdentityPending"
	// ReasonIdentityNotNeeded: no peering is wanted, so there is no identity (status None).
	ReasonIdentityNotNeeded = "IdentityNotNeeded"
	// ReasonVersionMismatch: the two clusters have no protocol version in common (status Error).
	ReasonVersionMismatch = "VersionMismatch"
)

// Reasons of ProcessForeignClusterStatus.
const (
	// ReasonForeignClusterProcessable: the spec is valid (status Success).
	ReasonForeignClusterProcessable = "ForeignClusterProcessable"
	// ReasonReconciliationFailed: a step failed and is tried again; the message names it (status Error).
	ReasonReconciliationFailed = "ReconciliationFailed"
	// ReasonLocalCluster: the spec names this cluster itself (status Error).
	ReasonLocalCluster = "LocalCluster"
	// ReasonClusterIDRepetition: an older ForeignCluster stands for the same cluster (status Error).
	ReasonClusterIDRepetition = "ClusterIDRepetition"
	// ReasonInvalidProxyURL: foreignProxyUrl cannot be used (status Error).
	ReasonInvalidProxyURL = "InvalidProxyURL"
	// ReasonInBandNotSupported: peeringType is InBand, and the network of Liqo is off.
	ReasonInBandNotSupported = "InBandNotSupported"
	// ReasonIdentityMismatch: another cluster than that of the spec answers at the authentication URL.
	ReasonIdentityMismatch = "IdentityMismatch"
	// ReasonTenantNamespaceTaken: the namespace that the remote cluster would have here is that of another one.
	ReasonTenantNamespaceTaken = "TenantNamespaceTaken"
)
