// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndpointSliceTemplate is the content of the EndpointSlice.
type EndpointSliceTemplate struct {
	// Endpoints of the slice, as many as Kubernetes has in one.
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:XValidation:rule="self.all(one, size(one.addresses) <= 100)",message="an endpoint has at most 100 addresses"
	// +listType=atomic
	// +optional
	Endpoints []discoveryv1.Endpoint `json:"endpoints,omitempty"`
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
