// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceMappingStrategy is how remote namespaces are named.
// +kubebuilder:validation:Enum=EnforceSameName;DefaultName
type NamespaceMappingStrategy string

// The ways to name a remote namespace.
const (
	// EnforceSameName: the name of the local namespace.
	EnforceSameName NamespaceMappingStrategy = "EnforceSameName"
	// DefaultName: the local name, the local cluster's name and six digits of the hash of its ID.
	DefaultName NamespaceMappingStrategy = "DefaultName"
)

// PodOffloadingStrategy is where pods of the namespace may run.
// +kubebuilder:validation:Enum=Local;Remote;LocalAndRemote
type PodOffloadingStrategy string

// The values of PodOffloadingStrategy.
const (
	PodsLocal          PodOffloadingStrategy = "Local"
	PodsRemote         PodOffloadingStrategy = "Remote"
	PodsLocalAndRemote PodOffloadingStrategy = "LocalAndRemote"
)

// Reflection is which objects of the namespace are copied to the selected clusters.
// +kubebuilder:validation:Enum=All;Referenced
type Reflection string

// The values of Reflection.
const (
	// ReflectAll: all objects of the kinds that are reflected.
	ReflectAll Reflection = "All"
	// ReflectReferenced: ConfigMaps and Secrets only if a pod in that cluster or an Ingress refers to them, or with the annotation liqo.io/reflect=true.
	ReflectReferenced Reflection = "Referenced"
)

// PodField is a field of pods that a pod does not have in another cluster, and that changes how isolated it is or where it runs.
// +kubebuilder:validation:Enum=clusterTrustBundle;os;resourceClaims;runtimeClassName
type PodField string

// OffloadingPhase summarizes the state of the offloading of a namespace.
// +kubebuilder:validation:Enum=Ready;NoClusterSelected;InProgress;SomeFailed;AllFailed;Terminating
type OffloadingPhase string

// The phases of offloading.
const (
	OffloadingReady             OffloadingPhase = "Ready"
	OffloadingNoClusterSelected OffloadingPhase = "NoClusterSelected"
	OffloadingInProgress        OffloadingPhase = "InProgress"
	OffloadingSomeFailed        OffloadingPhase = "SomeFailed"
	OffloadingAllFailed         OffloadingPhase = "AllFailed"
	OffloadingTerminating       OffloadingPhase = "Terminating"
)

// NamespaceOffloadingName is the only name a NamespaceOffloading may have.
const NamespaceOffloadingName = "offloading"

// CustomResource is a kind of custom resources of an offloaded namespace that is copied to the selected clusters, and whose status comes back from one of them.
type CustomResource struct {
	// APIVersion is the group and the version, such as example.com/v1. Both clusters must serve it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// Kind is the kind, such as Widget.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$`
	Kind string `json:"kind"`
	// StatusFrom is the virtual node of the cluster whose status comes back; None for that of no cluster. Unset: that of the only selected cluster, and of none while
	// several are selected.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StatusFrom string `json:"statusFrom,omitempty"`
}

// StatusFromNone is the value of StatusFrom with which no status comes back.
const StatusFromNone = "None"

// NamespaceOffloadingSpec is how the user offloads one namespace.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.customResources) || oldSelf.customResources.all(was, has(self.customResources) && self.customResources.exists(is, is.apiVersion == was.apiVersion && is.kind == was.kind))",message="kinds cannot be removed from customResources, because their copies would stay; unoffload the namespace, then offload it again"
type NamespaceOffloadingSpec struct {
	// NamespaceMappingStrategy is how remote namespaces are named. Immutable.
	// +kubebuilder:default=DefaultName
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="namespaceMappingStrategy cannot be changed; unoffload the namespace, then offload it again"
	// +optional
	NamespaceMappingStrategy NamespaceMappingStrategy `json:"namespaceMappingStrategy,omitempty"`
	// PodOffloadingStrategy is where pods may run.
	// +kubebuilder:default=LocalAndRemote
	// +optional
	PodOffloadingStrategy PodOffloadingStrategy `json:"podOffloadingStrategy,omitempty"`
	// Reflection is which ConfigMaps and Secrets are copied to the selected clusters.
	// +kubebuilder:default=All
	// +optional
	Reflection Reflection `json:"reflection,omitempty"`
	// RunWithout are fields that pods may lack in the selected clusters. A pod that sets one is run there without it; otherwise it stays Pending, because without
	// it the pod has less isolation, or other devices or nodes, than it asked for.
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	// +optional
	RunWithout []PodField `json:"runWithout,omitempty"`
	// UnreachableTolerationSeconds is how long pods that run at a provider stay there after it has stopped to answer. Kubernetes replaces them then, as those of any
	// lost node. Unset: after its own default, five minutes. Pods whose owner chose tolerationSeconds keep those.
	// +kubebuilder:validation:Minimum=300
	// +kubebuilder:validation:Maximum=31536000
	// +optional
	UnreachableTolerationSeconds *int64 `json:"unreachableTolerationSeconds,omitempty"`
	// CustomResources are the kinds of custom resources that are copied as well. The administrators of both clusters must have granted them, with the values
	// virtualKubelet.customResources here and peers.customResources there. Kinds of Kubernetes and of Liqo itself are refused.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(one, one.apiVersion.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)+/v[0-9]+((alpha|beta)[0-9]+)?$'))",message="an apiVersion of customResources is a group with a dot and a version, such as example.com/v1"
	// +kubebuilder:validation:XValidation:rule="self.all(one, !one.apiVersion.matches('(^|[.])liqo[.]io/|^(networking|discovery)[.]k8s[.]io/'))",message="customResources must not name kinds of Liqo, or kinds of Kubernetes that are reflected anyway"
	// +listType=map
	// +listMapKey=apiVersion
	// +listMapKey=kind
	// +optional
	CustomResources []CustomResource `json:"customResources,omitempty"`
	// ClusterSelector selects clusters by the labels of their virtual nodes. Without terms, it selects all.
	// +optional
	ClusterSelector corev1.NodeSelector `json:"clusterSelector,omitzero"`
}

// RemoteNamespaceCondition is one aspect of one remote namespace.
type RemoteNamespaceCondition struct {
	// Type: OffloadingRequired or Ready.
	Type string `json:"type"`
	// Status: True or False.
	Status corev1.ConditionStatus `json:"status"`
	// LastTransitionTime is when Status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is the cause of the status, as one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is the cause of the status, for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// RemoteNamespaceConditions are the aspects of one remote namespace.
type RemoteNamespaceConditions []RemoteNamespaceCondition

// NamespaceOffloadingStatus is the state of the offloading of one namespace.
type NamespaceOffloadingStatus struct {
	// RemoteNamespaceName is the name of the namespace in all selected clusters.
	// +optional
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`
	// OffloadingPhase summarizes the conditions.
	// +optional
	OffloadingPhase OffloadingPhase `json:"offloadingPhase,omitempty"`
	// RemoteNamespacesConditions holds, per unique name of a cluster, the conditions of its namespace.
	// +optional
	RemoteNamespacesConditions map[string]RemoteNamespaceConditions `json:"remoteNamespacesConditions,omitempty"`
	// ObservedGeneration is the generation of the spec to which the phase refers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// RemoteContents is the answer to the annotation liqo.io/count-remote-contents, and exists as long as the annotation.
	// +optional
	RemoteContents *RemoteContents `json:"remoteContents,omitempty"`
}

// RemoteContents is what remote namespaces contained when they were read for one request.
// +structType=atomic
type RemoteContents struct {
	// Request identifies the request: it is the first word of the annotation. Contents of another request are outdated.
	// +kubebuilder:validation:MaxLength=64
	Request string `json:"request"`
	// Clusters holds, per unique name of a cluster, the contents of its remote namespace.
	// +optional
	Clusters map[string]RemoteNamespaceContents `json:"clusters,omitempty"`
}

// RemoteNamespaceContents counts the objects in one remote namespace that its deletion would delete.
type RemoteNamespaceContents struct {
	// RemoteNamespace is its name in that cluster.
	// +optional
	RemoteNamespace string `json:"remoteNamespace,omitempty"`
	// Error is why the namespace could not be read. The other fields are then empty.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Error string `json:"error,omitempty"`
	// Copies is the number of objects that this cluster created there, per kind.
	// +kubebuilder:validation:MaxProperties=10
	// +optional
	Copies map[string]int32 `json:"copies,omitempty"`
	// Claims are PersistentVolumeClaims, except those that hold the data of volumes of this cluster.
	// +optional
	Claims *FoundObjects `json:"claims,omitempty"`
	// Others are objects that this cluster did not create. A name begins with the kind.
	// +optional
	Others *FoundObjects `json:"others,omitempty"`
}

// FoundObjects are objects of which only the first ones are named.
type FoundObjects struct {
	// Count is the number of all objects.
	Count int32 `json:"count"`
	// Names are the first names.
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=300
	// +listType=atomic
	// +optional
	Names []string `json:"names,omitempty"`
}

// NamespaceOffloading extends one namespace to other clusters.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=nsof,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'offloading'",message="a NamespaceOffloading must be called 'offloading': there is one per namespace"
// +kubebuilder:printcolumn:name="NamespaceMappingStrategy",type=string,JSONPath=`.spec.namespaceMappingStrategy`
// +kubebuilder:printcolumn:name="PodOffloadingStrategy",type=string,JSONPath=`.spec.podOffloadingStrategy`
// +kubebuilder:printcolumn:name="OffloadingPhase",type=string,JSONPath=`.status.offloadingPhase`
// +kubebuilder:printcolumn:name="RemoteNamespaceName",type=string,priority=10,JSONPath=`.status.remoteNamespaceName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceOffloading struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NamespaceOffloadingSpec   `json:"spec,omitempty"`
	Status NamespaceOffloadingStatus `json:"status,omitempty"`
}

// NamespaceOffloadingList is a list of offloaded namespaces.
// +kubebuilder:object:root=true
type NamespaceOffloadingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceOffloading `json:"items"`
}
