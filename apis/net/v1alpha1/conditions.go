// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ConnectionStatus is the state of the tunnel to a peer.
// +kubebuilder:validation:Enum=Connected;Connecting;Error
type ConnectionStatus string

// The states of a tunnel.
const (
	Connected       ConnectionStatus = "Connected"
	Connecting      ConnectionStatus = "Connecting"
	ConnectionError ConnectionStatus = "Error"
)

// NotRemapped is the value of a NAT field for a network whose addresses are not translated.
const NotRemapped = "None"

// Condition types of NetworkConfig, TunnelEndpoint and IPMapping.
const (
	// ConditionReady: the addresses are agreed and the object can be used. On a NetworkConfig, the receiver sets it.
	ConditionReady = "Ready"
	// ConditionConnected, on a TunnelEndpoint: probes through the tunnel come back, to every node.
	ConditionConnected = "Connected"
	// ConditionUsable, on a TunnelEndpoint: at least half of the nodes that are Ready reach the peer, so its virtual node can be used.
	ConditionUsable = "Usable"
	// ConditionNetworksFree, on a TunnelEndpoint: no node reaches a network of the peer without the peer. It is there once that was ever false.
	ConditionNetworksFree = "NetworksFree"
	// ConditionPublished, on this cluster's own NetworkConfig: its content is complete, and the peer's answer is valid.
	ConditionPublished = "Published"
)

// Reasons of Ready of a NetworkConfig, and of Ready of a TunnelEndpoint.
const (
	// ReasonAgreed: both clusters agree on the addresses.
	ReasonAgreed = "Agreed"
	// ReasonKeyNotPinned: the key of the peer is not known yet, so nothing that it publishes is believed.
	ReasonKeyNotPinned = "KeyNotPinned"
	// ReasonNotSigned: the peer did not sign its configuration, as earlier versions.
	ReasonNotSigned = "NotSigned"
	// ReasonSignatureInvalid: the configuration is not what the peer signed, or another cluster signed it.
	ReasonSignatureInvalid = "SignatureInvalid"
	// ReasonVersionOld: the configuration is older than one that was believed before.
	ReasonVersionOld = "VersionOld"
	// ReasonWrongDestination: its destination is another cluster.
	ReasonWrongDestination = "WrongDestination"
	// ReasonBackendUnknown: the peer uses a tunnel technology that this cluster does not support.
	ReasonBackendUnknown = "BackendUnknown"
	// ReasonNetworkInvalid: a network is impossible, or larger than every pool.
	ReasonNetworkInvalid = "NetworkInvalid"
	// ReasonNetworkTooLarge: the networks are together larger than what one peer gets.
	ReasonNetworkTooLarge = "NetworkTooLarge"
	// ReasonNetworkChanged: a network is not the one that is in use, and no administrator of the receiver has agreed to the change.
	ReasonNetworkChanged = "NetworkChanged"
	// ReasonNetworksExhausted: no network of that size is free in the pools.
	ReasonNetworksExhausted = "NetworksExhausted"
	// ReasonNodesUnreported: nodes of the receiver have not reported yet what they reach, so it is not known whether a network is theirs. Also of events.
	ReasonNodesUnreported = "NodesUnreported"
	// ReasonLaneInvalid: no lane, or one with an impossible number, key or address.
	ReasonLaneInvalid = "LaneInvalid"
	// ReasonKeyInUse: another peer, or this cluster, has this public key.
	ReasonKeyInUse = "KeyInUse"
)

// Reasons of events about the networks of a peer.
const (
	// ReasonNetworkUnmapped: a network of the peer is used as it is, by the word of an administrator.
	ReasonNetworkUnmapped = "NetworkUnmapped"
	// ReasonNetworkRemapped: a network that was used as it is has no word of an administrator, and is remapped.
	ReasonNetworkRemapped = "NetworkRemapped"
)

// Reasons of NetworksFree, and of the event about it.
const (
	// ReasonNetworksFree: no node reaches a network of the peer without the peer any more.
	ReasonNetworksFree = "NetworksFree"
	// ReasonNetworkOverlapsNode: nodes reach a network of the peer by their own links, routes or resolvers.
	ReasonNetworkOverlapsNode = "NetworkOverlapsNode"
)

// Reasons of Published.
const (
	// ReasonPublished: the configuration is complete and its answer is valid.
	ReasonPublished = "Published"
	// ReasonGatewayNotFound: there is no Service of a gateway.
	ReasonGatewayNotFound = "GatewayNotFound"
	// ReasonGatewayNoAddress: the Service of a gateway has no address yet, or one that cannot be used.
	ReasonGatewayNoAddress = "GatewayNoAddress"
	// ReasonAnswerPending: the peer has not answered yet. On a TunnelEndpoint, of Ready: this cluster's networks have changed, and the peer has not answered that.
	ReasonAnswerPending = "AnswerPending"
	// ReasonAnswerInvalid: the peer's answer is impossible.
	ReasonAnswerInvalid = "AnswerInvalid"
)

// Reasons of Connected.
const (
	// ReasonConnected: probes come back on every lane, to every node.
	ReasonConnected = "Connected"
	// ReasonDegraded: connected, but a lane or a node gets no answers.
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
	// ReasonCarrierChanged, of an event: another carrier carries the tunnel.
	ReasonCarrierChanged = "CarrierChanged"
)

// Reasons of Ready of an IPMapping.
const (
	// ReasonAssigned: the address has an external one.
	ReasonAssigned = "Assigned"
	// ReasonAddressInvalid: the text is not an address that can be mapped.
	ReasonAddressInvalid = "AddressInvalid"
	// ReasonAddressRefused: the address is one of this cluster, and no administrator asked for it to be reachable.
	ReasonAddressRefused = "AddressRefused"
	// ReasonAddressesExhausted: the external network has no address left.
	ReasonAddressesExhausted = "AddressesExhausted"
)
