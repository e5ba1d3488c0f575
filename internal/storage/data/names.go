// SPDX-License-Identifier: Apache-2.0

package data

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/reasons"
)

const (
	// Provisioner is the provisioner of our storage classes.
	Provisioner = "liqo.io/storage"
	// Provisioned is the annotation of a volume that names the provisioner that made it.
	Provisioned = "pv.kubernetes.io/provisioned-by"
	// Assigned is the annotation with which Kubernetes assigns a claim to a provisioner.
	Assigned = "volume.kubernetes.io/storage-provisioner"
	// SelectedNode is the annotation of a claim that names the node where its volume is to be made, as the scheduler decided.
	SelectedNode = "volume.kubernetes.io/selected-node"
	// ReasonRefused is the reason of the event of a claim that the provider refuses.
	ReasonRefused = reasons.FailedReflection
	// VolumePrefix and the UID of a claim are the name of the volume that our provisioner makes: the default of its library.
	VolumePrefix = "pvc-"
)

// VolumeOf returns the name of the volume of a claim; before the claim is bound, the one that our provisioner will give it.
func VolumeOf(claim *corev1.PersistentVolumeClaim) string {
	return cmp.Or(claim.Spec.VolumeName, VolumePrefix+string(claim.UID))
}

// ClaimsOf returns the names of the claims that a pod uses, with those that Kubernetes makes for it.
func ClaimsOf(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		switch volume := &pod.Spec.Volumes[i]; {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Name+"-"+volume.Name)
		}
	}
	return names
}
