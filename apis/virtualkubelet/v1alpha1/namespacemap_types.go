// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MappingPhase is the state of one remote namespace.
// +kubebuilder:validation:Enum=Accepted;CreationLoopBackOff;Terminating
type MappingPhase string

// The phases of a mapping.
const (
	MappingAccepted            MappingPhase = "Accepted"
	MappingCreationLoopBackOff MappingPhase = "CreationLoopBackOff"
	MappingTerminating         MappingPhase = "Terminating"
)

// ReflectedKind is a kind of custom resources that is copied to the provider.
type ReflectedKind struct {
	// APIVersion is the group and the version.
	APIVersion string `json:"apiVersion"`
	// Kind is the kind.
	Kind string `json:"kind"`
	// Status: the status of the copies comes back.
	// +optional
	Status bool `json:"status,omitempty"`
}

// NamespaceMapSpec lists the namespaces that the consumer requests in the provider.
type NamespaceMapSpec struct {
	// DesiredMapping maps local to remote namespace names.
	// +kubebuilder:validation:MaxProperties=5000
	// +optional
	DesiredMapping map[string]string `json:"desiredMapping,omitempty"`
	// WithoutAPIServer are the local namespaces whose pods, in the provider, get neither tokens for the API server of the consumer nor its
	// address. It is for the consumer's own virtual kubelet, which observes a namespace and this field together. The copy in the provider
	// does not have it.
	// +kubebuilder:validation:MaxItems=5000
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	WithoutAPIServer []string `json:"withoutAPIServer,omitempty"`
	// ReferencedOnly are the local namespaces of which only those ConfigMaps and Secrets are copied that something in the provider refers to. As
	// WithoutAPIServer, it is for the consumer's own virtual kubelet.
	// +listType=set
	// +optional
	ReferencedOnly []string `json:"referencedOnly,omitempty"`
	// RunWithout holds, per local namespace, the fields that its pods may lack in the provider. As WithoutAPIServer, it is for the consumer's own virtual kubelet.
	// +optional
	RunWithout map[string][]string `json:"runWithout,omitempty"`
	// UnreachableTolerationSeconds holds, per local namespace, how long its pods tolerate that the provider does not answer, if not as long as those of
	// any lost node. As WithoutAPIServer, it is for the consumer's own virtual kubelet.
	// +optional
	UnreachableTolerationSeconds map[string]int64 `json:"unreachableTolerationSeconds,omitempty"`
	// CustomResources holds, per local namespace, the kinds of custom resources that are copied. As WithoutAPIServer, it is for the consumer's own virtual kubelet.
	// +optional
	CustomResources map[string][]ReflectedKind `json:"customResources,omitempty"`
}

// RemoteNamespaceStatus is the state of one remote namespace.
type RemoteNamespaceStatus struct {
	// RemoteNamespace is its name.
	// +optional
	RemoteNamespace string `json:"remoteNamespace,omitempty"`
	// Phase is its state.
	// +optional
	Phase MappingPhase `json:"phase,omitempty"`
	// Message is the reason why it is not accepted.
	// +optional
	Message string `json:"message,omitempty"`
}

// NamespaceMapStatus is the answer of the provider.
type NamespaceMapStatus struct {
	// CurrentMapping maps local namespace names to the namespaces in the provider.
	// +optional
	CurrentMapping map[string]RemoteNamespaceStatus `json:"currentMapping,omitempty"`
}

// NamespaceMap maps local namespaces to remote namespaces in one provider.
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
