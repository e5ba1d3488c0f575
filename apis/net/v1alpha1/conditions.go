// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ConnectionStatus is how the tunnel to a peer stands.
// +kubebuilder:validation:Enum=Connected;Connecting;Error
type ConnectionStatus string

// The states of a tunnel.
const (
	Connected       ConnectionStatus = "Connected"
	Connecting      ConnectionStatus = "Connecting"
	ConnectionError ConnectionStatus = "Error"
)

// NotRemapped stands where a network keeps its addresses: the documented word for "no translation".
const NotRemapped = "None"

// Condition types of NetworkConfig, TunnelEndpoint and IPMapping.
const (
	// ConditionReady: the addresses are agreed and the object can be used. On a NetworkConfig its receiver says so.
	ConditionReady = "Ready"
	// ConditionConnected, on a TunnelEndpoint: probes through the tunnel come back, to every node.
	ConditionConnected = "Connected"
	// ConditionUsable, on a TunnelEndpoint: at least half of the nodes that are Ready reach the peer, so its virtual node is worth something.
	ConditionUsable = "Usable"
	// ConditionPublished, on this cluster's own NetworkConfig: what it tells is complete, and the peer's answer can be used.
	ConditionPublished = "Published"
)

// Reasons of Ready of a NetworkConfig, and of Ready of a TunnelEndpoint.
const (
	ReasonAgreed = "Agreed"
	// ReasonWrongDestination: it is meant for another cluster.
	ReasonWrongDestination = "WrongDestination"
	// ReasonBackendUnknown: the peer speaks a technology of tunnels that this cluster does not.
	ReasonBackendUnknown = "BackendUnknown"
	// ReasonNetworkInvalid: a network that cannot be, or that is larger than every pool.
	ReasonNetworkInvalid = "NetworkInvalid"
	// ReasonNetworksExhausted: no network of that size is free in the pools.
	ReasonNetworksExhausted = "NetworksExhausted"
	// ReasonLaneInvalid: no lane, or one with an impossible number, key or address.
	ReasonLaneInvalid = "LaneInvalid"
	// ReasonKeyInUse: another peer, or this cluster, has this public key.
	ReasonKeyInUse = "KeyInUse"
)

// Reasons of Published.
const (
	ReasonPublished = "Published"
	// ReasonGatewayNotFound: there is no Service of a gateway.
	ReasonGatewayNotFound = "GatewayNotFound"
	// ReasonGatewayNoAddress: the Service of a gateway has no address yet, or one that cannot be used.
	ReasonGatewayNoAddress = "GatewayNoAddress"
	// ReasonAnswerPending: the peer has not answered yet.
	ReasonAnswerPending = "AnswerPending"
	// ReasonAnswerInvalid: the peer answered something that cannot be.
	ReasonAnswerInvalid = "AnswerInvalid"
)

// Reasons of Connected.
const (
	ReasonConnected = "Connected"
	// ReasonDegraded: connected, but a lane or a node is not heard.
	ReasonDegraded = "Degraded"
	// ReasonNoCommonLane: no lane has a gateway in both clusters.
	ReasonNoCommonLane = "NoCommonLane"
	// ReasonGatewaySilent: a gateway of this cluster does not report.
	ReasonGatewaySilent = "GatewaySilent"
	// ReasonGatewayFailed: a gateway of this cluster cannot make the tunnel.
	ReasonGatewayFailed = "GatewayFailed"
	// ReasonNoHandshake: the gateways never agreed on keys, or not lately.
	ReasonNoHandshake = "NoHandshake"
	// ReasonProbesLost: the gateways agreed on keys, but probes do not come back.
	ReasonProbesLost = "ProbesLost"
	// ReasonNodesCutOff: gateways reach the peer, some nodes of this cluster do not.
	ReasonNodesCutOff = "NodesCutOff"
)

// Reasons of Ready of an IPMapping.
const (
	ReasonAssigned           = "Assigned"
	ReasonAddressInvalid     = "AddressInvalid"
	ReasonAddressesExhausted = "AddressesExhausted"
)
