// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Endpoint of a ShadowEndpointSlice, in the form of those of an EndpointSlice. The API server does not look into it: that would be more than half of what
// the write of a large slice costs it. The controller that reads an Endpoint judges it.
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type Endpoint discoveryv1.Endpoint

// MarshalJSON writes the form of an endpoint of an EndpointSlice, without addresses if it has none.
func (e Endpoint) MarshalJSON() ([]byte, error) {
	if len(e.Addresses) > 0 {
		return json.Marshal(discoveryv1.Endpoint(e))
	}
	return json.Marshal(struct {
		discoveryv1.Endpoint
		Addresses []string `json:"addresses,omitempty"`
	}{discoveryv1.Endpoint(e), e.Addresses})
}

// UnmarshalJSON never fails: an endpoint in another form has no addresses. Otherwise one peer that writes such an endpoint would end the watch that
// brings the ShadowEndpointSlices of all peers.
func (e *Endpoint) UnmarshalJSON(text []byte) error {
	*e = Endpoint{}
	var read discoveryv1.Endpoint
	if json.Unmarshal(text, &read) == nil {
		*e = Endpoint(read)
	}
	return nil
}

// EndpointSliceTemplate is the content of the EndpointSlice.
type EndpointSliceTemplate struct {
	// Endpoints of the slice, as many as Kubernetes has in one.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	// +optional
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	// Ports of the slice.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	// +optional
	Ports []discoveryv1.EndpointPort `json:"ports,omitempty"`
	// AddressType of all endpoints.
	// +optional
	AddressType discoveryv1.AddressType `json:"addressType,omitempty"`
}

// ShadowEndpointSliceSpec is the EndpointSlice that is to exist in the provider.
type ShadowEndpointSliceSpec struct {
	// Template of the EndpointSlice.
	// +optional
	Template EndpointSliceTemplate `json:"template,omitempty"`
}

// ShadowEndpointSlice is the desired state of an EndpointSlice in the provider, which also controls its readiness.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
type ShadowEndpointSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ShadowEndpointSliceSpec `json:"spec,omitempty"`
}

// ShadowEndpointSliceList is a list of ShadowEndpointSlices.
// +kubebuilder:object:root=true
type ShadowEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ShadowEndpointSlice `json:"items"`
}
