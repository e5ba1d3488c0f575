// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TunnelEndpointSpec is what the data plane needs to know of one peer. "Local" and "remote" are seen
// from this cluster; a NAT field says as which network the other side sees it, None if as it is.
type TunnelEndpointSpec struct {
	// ClusterIdentity is the peer.
	ClusterIdentity ClusterIdentity `json:"clusterIdentity"`
	// LocalPodCIDR is the network of this cluster's pods.
	LocalPodCIDR CIDR `json:"localPodCIDR"`
	// LocalNATPodCIDR is the network as which the peer sees it.
	// +kubebuilder:default=None
	// +optional
	LocalNATPodCIDR string `json:"localNATPodCIDR,omitempty"`
	// LocalExternalCIDR is the network in which this cluster makes other addresses reachable.
	LocalExternalCIDR CIDR `json:"localExternalCIDR"`
	// LocalNATExternalCIDR is the network as which the peer sees it.
	// +kubebuilder:default=None
	// +optional
	LocalNATExternalCIDR string `json:"localNATExternalCIDR,omitempty"`
	// RemotePodCIDR is the network of the peer's pods, as the peer has it.
	RemotePodCIDR CIDR `json:"remotePodCIDR"`
	// RemoteNATPodCIDR is the network as which this cluster sees it.
	// +kubebuilder:default=None
	// +optional
	RemoteNATPodCIDR string `json:"remoteNATPodCIDR,omitempty"`
	// RemoteExternalCIDR is the network in which the peer makes other addresses reachable.
	RemoteExternalCIDR CIDR `json:"remoteExternalCIDR"`
	// RemoteNATExternalCIDR is the network as which this cluster sees it.
	// +kubebuilder:default=None
	// +optional
	RemoteNATExternalCIDR string `json:"remoteNATExternalCIDR,omitempty"`
	// EndpointIP is where the peer's first gateway can be reached; empty if it cannot, and dials itself.
	EndpointIP string `json:"endpointIP"`
	// BackendType is the technology of the tunnel.
	// +kubebuilder:validation:Enum=wireguard
	BackendType string `json:"backendType"`
	// BackendConfig holds publicKey and port of the peer's first gateway, and for a while previousKey.0 and so on, the keys that its
	// gateways had before.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 63 && size(self[name]) <= 253)",message="names have at most 63 characters, values 253"
	BackendConfig map[string]string `json:"backend_config"`
	// Lanes are all gateways of the peer.
	// +listType=map
	// +listMapKey=number
	// +optional
	Lanes []Lane `json:"lanes,omitempty"`
}

// Latency of a tunnel.
type Latency struct {
	// Value is a duration with its unit, for example 1.2ms.
	// +optional
	Value string `json:"value,omitempty"`
	// Timestamp is when it was measured.
	// +optional
	Timestamp metav1.Time `json:"timestamp,omitempty"`
}

// Connection is how the tunnel stands.
type Connection struct {
	// Status of the tunnel.
	// +optional
	Status ConnectionStatus `json:"status,omitempty"`
	// StatusMessage says why.
	// +optional
	StatusMessage string `json:"statusMessage,omitempty"`
	// Latency is the round trip through the tunnel.
	// +optional
	Latency Latency `json:"latency,omitempty"`
	// MTU is the largest packet, in bytes, that was seen to pass to the peer and back. 0: not measured yet.
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// PeerConfiguration is what the tunnel uses: endpointIP, port, allowedIPs, publicKey.
	// +optional
	PeerConfiguration map[string]string `json:"peerConfiguration,omitempty"`
}

// TunnelEndpointStatus is how the data plane to one peer stands.
type TunnelEndpointStatus struct {
	// GatewayIP is the address of the gateway in use.
	// +optional
	GatewayIP string `json:"gatewayIP,omitempty"`
	// Connection is how the tunnel stands.
	// +optional
	Connection Connection `json:"connection,omitempty"`
	// ObservedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready and Connected.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TunnelEndpoint is the agreed pair of networks with one peer: the input of the data plane.
// There is one per pair of clusters, whichever of them uses the other.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Peering Cluster",type=string,JSONPath=`.spec.clusterIdentity.clusterName`
// +kubebuilder:printcolumn:name="Endpoint IP",type=string,priority=1,JSONPath=`.spec.endpointIP`
// +kubebuilder:printcolumn:name="Backend type",type=string,JSONPath=`.spec.backendType`
// +kubebuilder:printcolumn:name="Latency",type=string,priority=1,JSONPath=`.status.connection.latency.value`
// +kubebuilder:printcolumn:name="Connection status",type=string,JSONPath=`.status.connection.status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TunnelEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TunnelEndpointSpec   `json:"spec,omitempty"`
	Status TunnelEndpointStatus `json:"status,omitempty"`
}

// TunnelEndpointList is a list of tunnel endpoints.
// +kubebuilder:object:root=true
type TunnelEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TunnelEndpoint `json:"items"`
}
