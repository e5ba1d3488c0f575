// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
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
