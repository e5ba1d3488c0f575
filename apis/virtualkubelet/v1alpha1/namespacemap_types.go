// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MappingPhase is how one remote namespace stands.
// +kubebuilder:validation:Enum=Accepted;CreationLoopBackOff;Terminating
type MappingPhase string

// The phases of a mapping.
const (
	MappingAccepted            MappingPhase = "Accepted"
	MappingCreationLoopBackOff MappingPhase = "CreationLoopBackOff"
	MappingTerminating         MappingPhase = "Terminating"
)

// NamespaceMapSpec is which namespaces the consumer wants in the provider.
type NamespaceMapSpec struct {
	// DesiredMapping is from local to remote namespace names.
	// +optional
	DesiredMapping map[string]string `json:"desiredMapping,omitempty"`
	// WithoutAPIServer are the local namespaces whose pods, in the provider, get no tokens for the API server of the consumer and are not
	// told where it is. It is for the consumer's own virtual kubelet, which learns of a namespace and of this at once; the copy at the
	// provider does not have it.
	// +listType=set
	// +optional
	WithoutAPIServer []string `json:"withoutAPIServer,omitempty"`
}

// RemoteNamespaceStatus is how one remote namespace stands.
type RemoteNamespaceStatus struct {
	// RemoteNamespace is its name.
	// +optional
	RemoteNamespace string `json:"remoteNamespace,omitempty"`
	// Phase is how it stands.
	// +optional
	Phase MappingPhase `json:"phase,omitempty"`
	// Message says why it is not accepted.
	// +optional
	Message string `json:"message,omitempty"`
}

// NamespaceMapStatus is what the provider made of it.
type NamespaceMapStatus struct {
	// CurrentMapping is from local namespace names to what exists in the provider.
	// +optional
	CurrentMapping map[string]RemoteNamespaceStatus `json:"currentMapping,omitempty"`
}

// NamespaceMap is which local namespaces have a twin in one provider.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Local",type=string,JSONPath=`.metadata.labels.liqo\.io/replication`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NamespaceMapSpec   `json:"spec,omitempty"`
	Status NamespaceMapStatus `json:"status,omitempty"`
}

// NamespaceMapList is a list of namespace maps.
// +kubebuilder:object:root=true
type NamespaceMapList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceMap `json:"items"`
}
