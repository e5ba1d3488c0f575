// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IPMappingSpec is an address to be made reachable from peers.
type IPMappingSpec struct {
	// Address outside the pod networks, for example of a Service or of a host beside the cluster. Immutable.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="address cannot be changed; create another IPMapping"
	Address string `json:"address"`
	// ClusterIDs are the peers that may use it. Empty: all.
	// +listType=set
	// +optional
	ClusterIDs []string `json:"clusterIDs,omitempty"`
	// Ports that peers reach at the address. Empty: all ports, of all protocols.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	Ports []MappingPort `json:"ports,omitempty"`
	// Restricted refuses addresses of this cluster's nodes and API server, and of reserved networks. Liqo sets it on the mappings that it makes for the
	// endpoints of Services, because users of a namespace choose those.
	// +optional
	Restricted bool `json:"restricted,omitempty"`
}

// MappingPort is one port of a mapped address.
type MappingPort struct {
	// Protocol of the port.
	// +kubebuilder:validation:Enum=TCP;UDP
	Protocol corev1.Protocol `json:"protocol"`
	// Port is its number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// IPMappingStatus is the address under which it is reachable.
type IPMappingStatus struct {
	// ExternalAddress is its address in this cluster's external network. It is assigned once.
	// +optional
	ExternalAddress string `json:"externalAddress,omitempty"`
	// PeerAddresses are, per cluster ID, the address that this peer uses.
	// +optional
	PeerAddresses map[string]string `json:"peerAddresses,omitempty"`
	// Conditions: Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IPMapping makes one address outside the pod networks reachable from peers.
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="External address",type=string,JSONPath=`.status.externalAddress`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPMapping struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IPMappingSpec   `json:"spec,omitempty"`
	Status IPMappingStatus `json:"status,omitempty"`
}

// IPMappingList is a list of mappings.
// +kubebuilder:object:root=true
type IPMappingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []IPMapping `json:"items"`
}
