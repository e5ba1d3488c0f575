// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MovePhase is how far a move is. Each phase may be repeated.
// +kubebuilder:validation:Enum=Preparing;Measuring;Copying;Stopping;Finishing;Switching;Removing;Restoring;Completed;Failed
type MovePhase string

// The phases of a move, in this order. Until Switching the source is the data, after it the target.
const (
	// MovePreparing: the claim and the pod of the target are made.
	MovePreparing MovePhase = "Preparing"
	// MoveMeasuring: with dryRun, the files of the source are counted.
	MoveMeasuring MovePhase = "Measuring"
	// MoveCopying: passes copy the data; with online, while pods use the volume.
	MoveCopying MovePhase = "Copying"
	// MoveStopping: the volume is taken away from under the claim, and the pods that use it end.
	MoveStopping MovePhase = "Stopping"
	// MoveFinishing: the last differences are copied, and every file is verified.
	MoveFinishing MovePhase = "Finishing"
	// MoveSwitching: the volume comes back under the claim, with the data of the target.
	MoveSwitching MovePhase = "Switching"
	// MoveRemoving: what is left of the move is removed.
	MoveRemoving MovePhase = "Removing"
	// MoveRestoring: the volume comes back as it was, and what the move made is removed.
	MoveRestoring MovePhase = "Restoring"
	// MoveCompleted: the claim has the data of the target; after a dry run, nothing has changed.
	MoveCompleted MovePhase = "Completed"
	// MoveFailed: the claim has the data of the source, as before.
	MoveFailed MovePhase = "Failed"
)

// VolumeMoveSpec is where the data of a claim is to be. The claim has the name of the VolumeMove.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a move cannot be changed; delete it, which brings the volume back as it was, and create another one"
type VolumeMoveSpec struct {
	// TargetNode is the node where the data is to be: a node of this cluster, or a virtual node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TargetNode string `json:"targetNode"`
	// Online copies while pods use the volume, and ends them for the last differences only. Their controllers start them at the target.
	// +optional
	Online bool `json:"online,omitempty"`
	// KeepSource leaves the data at the source, as a released volume.
	// +optional
	KeepSource bool `json:"keepSource,omitempty"`
	// DryRun measures the source and changes nothing.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// Resources of the container of each of the two pods that copy.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`
}

// MoveAmount is an amount of data.
type MoveAmount struct {
	// Files counts files of every kind, directories included.
	Files int64 `json:"files"`
	// Bytes is the size of all regular files; holes count.
	Bytes int64 `json:"bytes"`
}

// MovePass is one pass over all files.
type MovePass struct {
	// All is what the source had.
	All MoveAmount `json:"all"`
	// Sent is what differed: files that were created or changed, and bytes that passed the network in both directions.
	Sent MoveAmount `json:"sent"`
	// Seconds is how long the pass took, without the start of its pod.
	Seconds int64 `json:"seconds"`
}

// VolumeMoveStatus is how far the move is.
type VolumeMoveStatus struct {
	// Phase is how far the move is.
	// +optional
	Phase MovePhase `json:"phase,omitempty"`
	// Message is what the move waits for, why it failed, or what it has done.
	// +optional
	Message string `json:"message,omitempty"`
	// From and To are where the data was and is to be: the name of a virtual node, or "this cluster".
	// +optional
	From string `json:"from,omitempty"`
	// +optional
	To string `json:"to,omitempty"`
	// ClaimUID and Volume identify the claim, and name its volume, when the move began.
	// +optional
	ClaimUID types.UID `json:"claimUID,omitempty"`
	// +optional
	Volume string `json:"volume,omitempty"`
	// Node is the node of this cluster whose pods use the volume; the pods that read it run there, too.
	// +optional
	Node string `json:"node,omitempty"`
	// Estimate is what the source has, after a dry run.
	// +optional
	Estimate *MoveAmount `json:"estimate,omitempty"`
	// Passes are the passes that have ended, the last one verified.
	// +listType=atomic
	// +optional
	Passes []MovePass `json:"passes,omitempty"`
	// Failures counts the pods that did not end well in this phase.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// PhaseSince is when the phase began.
	// +optional
	PhaseSince *metav1.Time `json:"phaseSince,omitempty"`
	// StoppedAt and StartedAt are when pods could not use the volume any more, and when they could again.
	// +optional
	StoppedAt *metav1.Time `json:"stoppedAt,omitempty"`
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
}

// VolumeMove moves the data of the claim of the same name to another cluster. Its deletion before Switching brings the volume back as it was.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,categories=liqo
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetNode`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VolumeMove struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VolumeMoveSpec   `json:"spec"`
	Status VolumeMoveStatus `json:"status,omitempty"`
}

// Ended reports whether the move has completed or failed, so that it changes nothing any more.
func (m *VolumeMove) Ended() bool {
	return m.Status.Phase == MoveCompleted || m.Status.Phase == MoveFailed
}

// VolumeMoveList is a list of moves.
// +kubebuilder:object:root=true
type VolumeMoveList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []VolumeMove `json:"items"`
}
