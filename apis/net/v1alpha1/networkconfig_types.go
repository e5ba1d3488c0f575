// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterIdentity is the identity that a cluster claims.
type ClusterIdentity struct {
	// ClusterID is the cluster's UUID.
	// +kubebuilder:validation:MaxLength=253
	ClusterID string `json:"clusterID"`
	// ClusterName is the cluster's name.
	// +kubebuilder:validation:MaxLength=253
	ClusterName string `json:"clusterName"`
}

// CIDR is a network in CIDR notation, of either address family.
// +kubebuilder:validation:MaxLength=64
type CIDR string

// The types of carriers.
const (
	CarrierUDP       = "UDP"
	CarrierTLS       = "TLS"
	CarrierWebSocket = "WebSocket"
	// CarrierPlainWebSocket is a WebSocket without TLS, behind a proxy that has none.
	CarrierPlainWebSocket = "PlainWebSocket"
)

// Keys of PeerConfiguration in the status of a TunnelEndpoint: the carrier in use, and why it is not a better one.
const (
	PeerCarrier       = "carrier"
	PeerCarrierReason = "carrierReason"
)

// Carrier is one way to reach a gateway: what carries the encrypted packets, and where it listens.
type Carrier struct {
	// Type of the carrier: UDP; or TLS, WebSocket or PlainWebSocket, for networks in which UDP does not pass. A reader skips types it does not know.
	// +kubebuilder:validation:MaxLength=253
	Type string `json:"type"`
	// Addresses where the gateway can be reached, most preferred first: IP addresses or host names.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	Addresses []string `json:"addresses"`
	// Port is the port at these addresses.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Path of a WebSocket.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Path string `json:"path,omitempty"`
}

// Lane is one gateway and the tunnel between it and the gateway of the same number in the other cluster.
type Lane struct {
	// Number of the lane, from 0.
	// +kubebuilder:validation:Minimum=0
	Number int32 `json:"number"`
	// PublicKey of the gateway.
	// +kubebuilder:validation:MaxLength=253
	PublicKey string `json:"publicKey"`
	// Carriers to the gateway, most preferred first. Empty: this side cannot be reached, and opens the tunnel.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	Carriers []Carrier `json:"carriers,omitempty"`
}

// Networks are the networks of a cluster in one address family.
type Networks struct {
	// PodCIDR is the network of its pods.
	PodCIDR CIDR `json:"podCIDR"`
	// ExternalCIDR is the network in which it makes other addresses reachable.
	ExternalCIDR CIDR `json:"externalCIDR"`
}

// NetworksNAT are the networks to which another cluster remaps those of one address family; None if it does not remap them.
type NetworksNAT struct {
	// PodCIDRNAT is the one for PodCIDR.
	// +kubebuilder:validation:MaxLength=64
	PodCIDRNAT string `json:"podCIDRNAT"`
	// ExternalCIDRNAT is the one for ExternalCIDR.
	// +kubebuilder:validation:MaxLength=64
	ExternalCIDRNAT string `json:"externalCIDRNAT"`
}

// NetworkConfigSpec is the network that one cluster publishes to another.
type NetworkConfigSpec struct {
	// Cluster is the receiver.
	Cluster ClusterIdentity `json:"cluster"`
	// PodCIDR is the network of the sender's pods.
	PodCIDR CIDR `json:"podCIDR"`
	// ExternalCIDR is the network in which the sender makes other addresses reachable.
	ExternalCIDR CIDR `json:"externalCIDR"`
	// Networks are those of each address family. The first row repeats PodCIDR and ExternalCIDR, which readers of an earlier version read; a reader refuses
	// another one. Without rows, these two fields are the networks.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	Networks []Networks `json:"networks,omitempty"`
	// AdditionalPodCIDRs are further pod networks, of either address family.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	AdditionalPodCIDRs []CIDR `json:"additionalPodCIDRs,omitempty"`
	// EndpointIP is where the sender's first gateway can be reached: an IP address or a host name.
	// +kubebuilder:validation:MaxLength=253
	EndpointIP string `json:"endpointIP"`
	// BackendType is the technology of the tunnel.
	// +kubebuilder:validation:Enum=wireguard
	BackendType string `json:"backendType"`
	// BackendConfig holds publicKey and port of the sender's first gateway. With further rows of Networks, networks is their digest, so that the signatures,
	// which readers of an earlier version check as well, cover them.
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, size(name) <= 63 && size(self[name]) <= 253)",message="names have at most 63 characters, values 253"
	BackendConfig map[string]string `json:"backend_config"`
	// Lanes are all gateways of the sender; the first one repeats EndpointIP and BackendConfig.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=number
	// +optional
	Lanes []Lane `json:"lanes,omitempty"`
	// Version grows with every change of the other fields. The receiver believes no version older than the last one that it believed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Version int64 `json:"version,omitempty"`
	// Signatures of the sender over all other fields, one for each key that identifies it. The receiver believes what the key signed that it has
	// pinned in spec.clusterKey of the ForeignCluster, wherever the object was stored on its way.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	Signatures []Signature `json:"signatures,omitempty"`
}

// Signature is one of a cluster's key.
type Signature struct {
	// PublicKey is the Ed25519 key of the cluster, in Base64. Its fingerprint is spec.clusterKey of the ForeignCluster at the receiver.
	// +kubebuilder:validation:MaxLength=64
	PublicKey string `json:"publicKey"`
	// Value is the signature, in Base64.
	// +kubebuilder:validation:MaxLength=128
	Value string `json:"value"`
}

// NetworkConfigStatus is the answer of the receiver.
type NetworkConfigStatus struct {
	// Processed is true once the receiver has decided on the fields below.
	// +kubebuilder:default=false
	Processed bool `json:"processed"`
	// PodCIDRNAT is the network to which the receiver remaps PodCIDR; None if it does not remap it.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	PodCIDRNAT string `json:"podCIDRNAT,omitempty"`
	// ExternalCIDRNAT is the same for ExternalCIDR.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	ExternalCIDRNAT string `json:"externalCIDRNAT,omitempty"`
	// Networks are the same for each row of spec.networks, in its order. The first row repeats the two fields above.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	Networks []NetworksNAT `json:"networks,omitempty"`
	// Signatures of the receiver over its answer: both clusters, the networks and what they are remapped to. A refusal has none.
	// +kubebuilder:validation:MaxItems=2
	// +listType=atomic
	// +optional
	Signatures []Signature `json:"signatures,omitempty"`
	// ObservedGeneration is the generation of the spec that the receiver decided on.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready, by the receiver, is whether it accepted the networks; Published, by the sender, whether the content is complete.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkConfig is the network that one cluster publishes to another, and the answer of the other.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Peering Cluster",type=string,JSONPath=`.spec.cluster.clusterName`
// +kubebuilder:printcolumn:name="Endpoint IP",type=string,priority=1,JSONPath=`.spec.endpointIP`
// +kubebuilder:printcolumn:name="VPN Backend",type=string,priority=1,JSONPath=`.spec.backendType`
// +kubebuilder:printcolumn:name="Processed",type=string,JSONPath=`.status.processed`
// +kubebuilder:printcolumn:name="Local",type=string,JSONPath=`.metadata.labels.liqo\.io/replication`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NetworkConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NetworkConfigSpec   `json:"spec,omitempty"`
	Status NetworkConfigStatus `json:"status,omitempty"`
}

// NetworkConfigList is a list of network configurations.
// +kubebuilder:object:root=true
type NetworkConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NetworkConfig `json:"items"`
}
