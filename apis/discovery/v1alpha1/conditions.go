// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// PeeringConditionType names one aspect of a peering.
// +kubebuilder:validation:Enum=OutgoingPeering;IncomingPeering;NetworkStatus;APIServerStatus;AuthenticationStatus;ProcessForeignClusterStatus
type PeeringConditionType string

// The aspects of a peering.
const (
	OutgoingPeering      PeeringConditionType = "OutgoingPeering"
	IncomingPeering      PeeringConditionType = "IncomingPeering"
	NetworkStatus        PeeringConditionType = "NetworkStatus"
	APIServerStatus      PeeringConditionType = "APIServerStatus"
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
	ReasonNoResourceRequest       = "NoResourceRequest"
	ReasonResourceRequestPending  = "ResourceRequestPending"
	ReasonKubeletPending          = "KubeletPending"
	ReasonResourceRequestAccepted = "ResourceRequestAccepted"
	ReasonResourceRequestDeleting = "ResourceRequestDeleting"
	// ReasonResourceRequestRefused: the provider does not share with this cluster (status Denied).
	ReasonResourceRequestRefused = "ResourceRequestRefused"
)

// Reasons of NetworkStatus.
const (
	ReasonTunnelEndpointNotFound   = "TunnelEndpointNotFound"
	ReasonTunnelEndpointConnecting = "TunnelEndpointConnecting"
	ReasonTunnelEndpointAvailable  = "TunnelEndpointAvailable"
	ReasonTunnelEndpointError      = "TunnelEndpointError"
	ReasonExternalNetwork          = "ExternalNetwork"
)

// Reasons of APIServerStatus. With no identity yet, the status is None.
const (
	ReasonAPIServerReady     = "APIServerReady"
	ReasonAPIServerNotReady  = "APIServerNotReady"
	ReasonAPIServerNotNeeded = "APIServerNotNeeded"
)

// Reasons of AuthenticationStatus.
const (
	ReasonIdentityAccepted    = "IdentityAccepted"
	ReasonIdentityEmptyDenied = "IdentityEmptyDenied"
	ReasonIdentityDenied      = "IdentityDenied"
	ReasonProviderUnproven    = "ProviderUnproven"
	ReasonIncomingWaiting     = "IncomingPeeringWaiting"
	ReasonIncomingWithdrawing = "IncomingPeeringWithdrawing"
	ReasonIncomingRefused     = "IncomingPeeringRefused"
	ReasonIdentityError       = "IdentityError"
	ReasonAuthNotReachable    = "AuthNotReachable"
	// ReasonIdentityPending: first contact is under way (status Pending).
	ReasonIdentityPending = "IdentityPending"
	// ReasonIdentityNotNeeded: no peering is wanted, so there is no identity (status None).
	ReasonIdentityNotNeeded = "IdentityNotNeeded"
	// ReasonVersionMismatch: the two clusters have no protocol version in common (status Error).
	ReasonVersionMismatch = "VersionMismatch"
)

// Reasons of ProcessForeignClusterStatus.
const (
	ReasonForeignClusterProcessable = "ForeignClusterProcessable"
	ReasonReconciliationFailed      = "ReconciliationFailed"
	ReasonLocalCluster              = "LocalCluster"
	ReasonClusterIDRepetition       = "ClusterIDRepetition"
	ReasonInvalidProxyURL           = "InvalidProxyURL"
	// ReasonInBandNotSupported: peeringType is InBand, and the network of Liqo is off.
	ReasonInBandNotSupported = "InBandNotSupported"
	// ReasonIdentityMismatch: another cluster than that of the spec answers at the authentication URL.
	ReasonIdentityMismatch = "IdentityMismatch"
	// ReasonTenantNamespaceTaken: the namespace that the remote cluster would have here is that of another one.
	ReasonTenantNamespaceTaken = "TenantNamespaceTaken"
)
