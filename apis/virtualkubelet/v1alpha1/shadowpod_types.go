// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShadowPodSpec is the pod that is to run in the provider.
type ShadowPodSpec struct {
	// Pod is the specification of the pod. The provider's API server validates it when the pod is created.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +optional
	Pod corev1.PodSpec `json:"pod,omitempty"`
	// Fence is the UID of the consumer's pod, so a ShadowPod belongs to exactly one pod. Immutable.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="fence cannot be changed; another pod needs another ShadowPod"
	// +optional
	Fence string `json:"fence,omitempty"`
}

// ShadowPodPhase is the phase of the provider's pod.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Unknown
type ShadowPodPhase string

// The phases of a pod, as in Kubernetes.
const (
	ShadowPodPending   ShadowPodPhase = "Pending"
	ShadowPodRunning   ShadowPodPhase = "Running"
	ShadowPodSucceeded ShadowPodPhase = "Succeeded"
	ShadowPodFailed    ShadowPodPhase = "Failed"
	ShadowPodUnknown   ShadowPodPhase = "Unknown"
)

// ShadowPodStatus is the state of the provider's pod.
type ShadowPodStatus struct {
	// Phase of the pod. Succeeded and Failed are final. The others are recorded late: Pending of a pod that is 30 seconds old, Running of one that is a
	// minute old. Until then there is no status.
	// +kubebuilder:default=Unknown
	// +kubebuilder:validation:XValidation:rule="!(oldSelf in ['Succeeded', 'Failed']) || self == oldSelf",message="a finished pod stays finished"
	Phase ShadowPodPhase `json:"phase"`
	// PodUID is the UID of the provider's pod.
	// +optional
	PodUID string `json:"podUID,omitempty"`
	// Architecture is the value of kubernetes.io/arch that the provider has chosen for the pod, if it names none itself. A pod that is created again runs on the same one,
	// as long as the provider has a node of it. It is recorded with the phase, or when the pod is deleted.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Architecture string `json:"architecture,omitempty"`
}

// ShadowPod is the desired state of a pod in the provider, which keeps it running there without the consumer.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShadowPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ShadowPodSpec   `json:"spec,omitempty"`
	Status ShadowPodStatus `json:"status,omitempty"`
}

// ShadowPodList is a list of ShadowPods.
// +kubebuilder:object:root=true
type ShadowPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ShadowPod `json:"items"`
}
