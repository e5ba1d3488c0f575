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

// Condition types of TunnelEndpoint and IPMapping.
const (
	// ConditionReady: the addresses are agreed and the object can be used.
	ConditionReady = "Ready"
	// ConditionConnected: probes through the tunnel come back.
	ConditionConnected = "Connected"
)
