// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxNodeNetworks is how many networks a node reports at most. It joins neighbouring networks if it has more.
const MaxNodeNetworks = 64

// NodeNetworkKind is how a node reaches a network.
// +kubebuilder:validation:Enum=Link;Route;Resolver
type NodeNetworkKind string

// The ways in which a node reaches a network.
const (
	// NodeNetworkLink: one of its links has an address in the network.
	NodeNetworkLink NodeNetworkKind = "Link"
	// NodeNetworkRoute: its main table has a route to it.
	NodeNetworkRoute NodeNetworkKind = "Route"
	// NodeNetworkResolver: it asks a server there for names.
	NodeNetworkResolver NodeNetworkKind = "Resolver"
)

// NodeNetwork is one network that a node reaches.
type NodeNetwork struct {
	// CIDR is the network.
	// +kubebuilder:validation:MaxLength=18
	CIDR CIDR `json:"cidr"`
	// Kind is how the node reaches it.
	Kind NodeNetworkKind `json:"kind"`
	// Link is the name of the link that leads there.
	// +kubebuilder:validation:MaxLength=15
	// +optional
	Link string `json:"link,omitempty"`
}

// NodeReportSpec is what the agent of a node found out about it.
type NodeReportSpec struct {
	// Networks that the node reaches without Liqo, by its links, by the routes of its main table, and its resolvers. Of a network inside another one, only
	// the larger one is there. Default routes are not.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Networks []NodeNetwork `json:"networks,omitempty"`
}

// NodeReport is what the agent of a node reports. It has the name of the node, and is in the namespace of Liqo. No network of a peer is led to that peer if
// a node reaches it already.
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=liqo
// +kubebuilder:printcolumn:name="Networks",type=string,JSONPath=`.spec.networks[*].cidr`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +nullable
	// +optional
	Spec NodeReportSpec `json:"spec,omitempty"`
}

// NodeReportList is a list of reports.
// +kubebuilder:object:root=true
type NodeReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeReport `json:"items"`
}
