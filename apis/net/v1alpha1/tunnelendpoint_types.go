// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TunnelNetworks are the networks of both clusters in one address family, each as TunnelEndpointSpec has it.
type TunnelNetworks struct {
	// LocalPodCIDR is the network of this cluster's pods.
	LocalPodCIDR CIDR `json:"localPodCIDR"`
	// LocalNATPodCIDR is the network under which the peer reaches LocalPodCIDR.
	// +optional
	LocalNATPodCIDR string `json:"localNATPodCIDR,omitempty"`
	// LocalExternalCIDR is the network in which this cluster makes other addresses reachable.
	LocalExternalCIDR CIDR `json:"localExternalCIDR"`
	// LocalNATExternalCIDR is the network under which the peer reaches LocalExternalCIDR.
	// +optional
	LocalNATExternalCIDR string `json:"localNATExternalCIDR,omitempty"`
	// RemotePodCIDR is the network of the peer's pods, in the peer.
	RemotePodCIDR CIDR `json:"remotePodCIDR"`
	// RemoteNATPodCIDR is the network under which this cluster reaches RemotePodCIDR.
	// +optional
	RemoteNATPodCIDR string `json:"remoteNATPodCIDR,omitempty"`
	// RemoteExternalCIDR is the network in which the peer makes other addresses reachable.
	RemoteExternalCIDR CIDR `json:"remoteExternalCIDR"`
	// RemoteNATExternalCIDR is the network under which this cluster reaches RemoteExternalCIDR.
	// +optional
	RemoteNATExternalCIDR string `json:"remoteNATExternalCIDR,omitempty"`
}

// TunnelEndpointSpec is the input of the data plane for one peer. "Local" and "remote" are relative to
// this cluster. A NAT field is the network to which the other side remaps the field above it, None if it does not.
type TunnelEndpointSpec struct {
	// ClusterIdentity is the peer.
	ClusterIdentity ClusterIdentity `json:"clusterIdentity"`
	// LocalPodCIDR is the network of this cluster's pods.
	LocalPodCIDR CIDR `json:"localPodCIDR"`
	// LocalNATPodCIDR is the network under which the peer reaches LocalPodCIDR.
	// +kubebuilder:default=None
	// +optional
	LocalNATPodCIDR string `json:"localNATPodCIDR,omitempty"`
	// LocalExternalCIDR is the network in which this cluster makes other addresses reachable.
	LocalExternalCIDR CIDR `json:"localExternalCIDR"`
	// LocalNATExternalCIDR is the network under which the peer reaches LocalExternalCIDR.
	// +kubebuilder:default=None
	// +optional
	LocalNATExternalCIDR string `json:"localNATExternalCIDR,omitempty"`
	// RemotePodCIDR is the network of the peer's pods, in the peer.
	RemotePodCIDR CIDR `json:"remotePodCIDR"`
	// RemoteNATPodCIDR is the network under which this cluster reaches RemotePodCIDR.
	// +kubebuilder:default=None
	// +optional
	RemoteNATPodCIDR string `json:"remoteNATPodCIDR,omitempty"`
	// RemoteExternalCIDR is the network in which the peer makes other addresses reachable.
	RemoteExternalCIDR CIDR `json:"remoteExternalCIDR"`
	// RemoteNATExternalCIDR is the network under which this cluster reaches RemoteExternalCIDR.
	// +kubebuilder:default=None
	// +optional
	RemoteNATExternalCIDR string `json:"remoteNATExternalCIDR,omitempty"`
	// Networks are those of each address family. The first row repeats the fields above, which components of an earlier version read and which count if it
	// does not. Without rows, these fields are the networks.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	Networks []TunnelNetworks `json:"networks,omitempty"`
	// EndpointIP is where the peer's first gateway can be reached; empty if it cannot, and opens the tunnel.
	EndpointIP string `json:"endpointIP"`
	// BackendType is the technology of the tunnel.
	// +kubebuilder:validation:Enum=wireguard
	BackendType string `json:"backendType"`
	// BackendConfig holds publicKey and port of the peer's first gateway and, for a while after a change, the previous keys of its
	// gateways: previousKey.0 and so on.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 63 && size(self[name]) <= 253)",message="names have at most 63 characters, values 253"
	BackendConfig map[string]string `json:"backend_config"`
	// Lanes are all gateways of the peer.
	// +listType=map
	// +listMapKey=number
	// +optional
	Lanes []Lane `json:"lanes,omitempty"`
	// PeerVersion is spec.version of the peer's NetworkConfig from which this was agreed. An older one is not believed any more.
	// +optional
	PeerVersion int64 `json:"peerVersion,omitempty"`
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

// Connection is the state of the tunnel.
type Connection struct {
	// Status of the tunnel.
	// +optional
	Status ConnectionStatus `json:"status,omitempty"`
	// StatusMessage is the cause of the status.
	// +optional
	StatusMessage string `json:"statusMessage,omitempty"`
	// Latency is the round trip through the tunnel.
	// +optional
	Latency Latency `json:"latency,omitempty"`
	// MTU is the size, in bytes, of the largest packet that reached the peer and came back. 0: not measured yet.
	// +optional
	MTU int32 `json:"mtu,omitempty"`
	// PeerConfiguration is what the tunnel uses: endpointIP, port, allowedIPs, publicKey, lane, carrier, and carrierReason: why it is not a better carrier.
	// +optional
	PeerConfiguration map[string]string `json:"peerConfiguration,omitempty"`
}

// TunnelEndpointStatus is the state of the data plane to one peer.
type TunnelEndpointStatus struct {
	// GatewayIP is the address of the gateway in use.
	// +optional
	GatewayIP string `json:"gatewayIP,omitempty"`
	// Connection is the state of the tunnel.
	// +optional
	Connection Connection `json:"connection,omitempty"`
	// ObservedGeneration is the generation of the spec to which the status refers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready and Connected.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TunnelEndpoint holds the agreed networks of this cluster and one peer: the input of the data plane.
// There is one per peer, whichever cluster uses the other.
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
