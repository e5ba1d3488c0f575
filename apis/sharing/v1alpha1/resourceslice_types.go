// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

// SlicePhase summarizes the state of a request for resources.
// +kubebuilder:validation:Enum=Pending;ManualActionRequired;Accepted;Refused
type SlicePhase string

// The phases of a slice.
const (
	SlicePending              SlicePhase = "Pending"
	SliceManualActionRequired SlicePhase = "ManualActionRequired"
	SliceAccepted             SlicePhase = "Accepted"
	SliceRefused              SlicePhase = "Refused"
)

// ResourceSliceSpec is what the consumer asks for.
type ResourceSliceSpec struct {
	// ConsumerClusterID is the cluster that asks. The provider trusts its own record of the tenant, not this field.
	// +kubebuilder:validation:MaxLength=63
	ConsumerClusterID string `json:"consumerClusterID"`
	// ProviderClusterID is the cluster that is asked.
	// +kubebuilder:validation:MaxLength=63
	ProviderClusterID string `json:"providerClusterID"`
	// NodeName is the name of the virtual node for this slice in the consumer. Immutable.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeName cannot be changed"
	NodeName string `json:"nodeName"`
	// Resources is the most that the consumer requests. If empty, it requests all that the provider shares with it.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// AuthURL is the URL of the consumer's authentication service, if the consumer lets the provider use its resources in turn, and is reachable.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(https://[a-zA-Z0-9.\-\[\]:]+(:[0-9]{1,5})?(/[a-zA-Z0-9._~/\-]*)?)?$`
	// +optional
	AuthURL string `json:"authUrl,omitempty"`
	// ProxyURL is the URL of the consumer's proxy inside the tunnel, under which the provider reaches it, if the consumer lets the provider use its resources
	// in turn. Its pass only counts the connections of the provider there.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(http://[a-zA-Z0-9.\-_:]+@[0-9.]+:8118)?$`
	// +optional
	ProxyURL string `json:"proxyUrl,omitempty"`
}

// StorageClass is a storage class of the provider that the consumer may use.
type StorageClass struct {
	// StorageClassName is its name in the provider.
	StorageClassName string `json:"storageClassName"`
	// Default is true for the one used when none is named.
	// +optional
	Default bool `json:"default,omitempty"`
	// Clones is true if its provisioner is a driver of the Container Storage Interface, which makes a volume with the data of another one, or reports that it
	// cannot. Other provisioners make an empty one.
	// +optional
	Clones bool `json:"clones,omitempty"`
}

// IngressClass is an ingress class of the provider that the consumer may use.
type IngressClass struct {
	// IngressClassName is its name in the provider.
	IngressClassName string `json:"ingressClassName"`
	// Default is true for the one used when none is named.
	// +optional
	Default bool `json:"default,omitempty"`
}

// ResourceSliceStatus is what the provider grants; only the condition NodeReady is the consumer's.
type ResourceSliceStatus struct {
	// Phase summarizes the provider's answer.
	// +kubebuilder:default=Pending
	Phase SlicePhase `json:"phase,omitempty"`
	// Resources is how much the consumer may use.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Labels are put on the virtual node: the provider's cluster labels.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Architectures are the values of kubernetes.io/arch of the provider's nodes, most frequent first.
	// +listType=atomic
	// +optional
	Architectures []string `json:"architectures,omitempty"`
	// OperatingSystems are the values of kubernetes.io/os of the provider's nodes, most frequent first.
	// +listType=atomic
	// +optional
	OperatingSystems []string `json:"operatingSystems,omitempty"`
	// Images are images that the provider's nodes have.
	// +listType=atomic
	// +optional
	Images []corev1.ContainerImage `json:"images,omitempty"`
	// Prices are what resources cost in the provider, in the provider's unit.
	// +optional
	Prices corev1.ResourceList `json:"prices,omitempty"`
	// StorageClasses are the storage classes from which the consumer may request volumes.
	// +listType=map
	// +listMapKey=storageClassName
	// +optional
	StorageClasses []StorageClass `json:"storageClasses,omitempty"`
	// IngressClasses are the ingress classes that the consumer's ingresses may use.
	// +listType=map
	// +listMapKey=ingressClassName
	// +optional
	IngressClasses []IngressClass `json:"ingressClasses,omitempty"`
	// ProxyWanted: the provider is to use the consumer in turn, and does not reach it at its published addresses, or reaches it through its proxy already.
	// +optional
	ProxyWanted bool `json:"proxyWanted,omitempty"`
	// ProxyURL is the URL of the provider's proxy inside the tunnel. Out-of-band, its pass leads to the authentication service only, where the consumer renews
	// its identity if that does not answer otherwise.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(http://[a-zA-Z0-9.\-_:]+@[0-9.]+:8118)?$`
	// +optional
	ProxyURL string `json:"proxyUrl,omitempty"`
	// ObservedGeneration is the generation of the spec that the provider answered.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Granted (provider) and NodeReady (consumer).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ResourceSlice is one request for resources of a provider, and its answer. The consumer writes the
// spec in its cluster, it is copied to its tenant namespace in the provider, and the status comes back.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=offer,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="VirtualKubeletStatus",type=string,JSONPath=`.status.conditions[?(@.type == 'NodeReady')].reason`
// +kubebuilder:printcolumn:name="Node",type=string,priority=1,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="CPU",type=string,priority=1,JSONPath=`.status.resources.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,priority=1,JSONPath=`.status.resources.memory`
// +kubebuilder:printcolumn:name="Local",type=string,JSONPath=`.metadata.labels.liqo\.io/replication`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ResourceSliceSpec   `json:"spec,omitempty"`
	Status ResourceSliceStatus `json:"status,omitempty"`
}

// ResourceSliceList is a list of slices.
// +kubebuilder:object:root=true
type ResourceSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ResourceSlice `json:"items"`
}

// IsCopy distinguishes the request of a peer from our own request to the same peer, which is in the same namespace. Our finalizer identifies a copy as well:
// a peer could remove the label and so leave the object behind for ever.
func (s *ResourceSlice) IsCopy() bool {
	return s.Labels[labels.Replicated] == labels.True && s.Labels[labels.Replication] != labels.True || slices.Contains(s.Finalizers, labels.FinalizerGrant)
}
