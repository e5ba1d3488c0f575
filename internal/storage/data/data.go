// SPDX-License-Identifier: Apache-2.0

// Package data returns which data a volume of ours records. It is PURE: values in, values out.
//
// A volume records the data that was made for it, until a move gives it the data that was made for another one. So data has a name of its own, the name
// of the volume it was made for, and the claims that hold it carry that name (label or annotation storage.liqo.io/virtual-volume).
//
// It must not know who makes volumes, or what a move is. Its proof is TestData.
package data

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
)

// Name returns the name of the data of a volume.
func Name(volume *corev1.PersistentVolume) string {
	return cmp.Or(volume.Annotations[labels.VolumeData], volume.Name)
}

// Shared reports whether another volume records the same data and keeps it. It is asked before data is deleted, so an annotation with the name of
// another volume's data deletes nothing. A record whose data is to be deleted as well keeps nothing: of two that were released before either was
// processed, each would leave the data to the other, and it would stay for ever.
func Shared(volume, other *corev1.PersistentVolume) bool {
	return volume.Name != other.Name && Name(volume) == Name(other) && !ends(other)
}

// ends reports whether the claim of a volume was deleted, and the data is to be, too. A reference without a UID reserves the volume for a claim to come.
func ends(volume *corev1.PersistentVolume) bool {
	owner := volume.Spec.ClaimRef
	return volume.Status.Phase == corev1.VolumeReleased &&
		volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && owner != nil && owner.UID != ""
}

// IsRemote reports whether the data of a volume is at a provider.
func IsRemote(volume *corev1.PersistentVolume) bool {
	return volume.Labels[labels.RemoteClusterID] != ""
}

// RemoteClaim returns the name of the claim at the provider that holds the data of a volume with a claim.
func RemoteClaim(volume *corev1.PersistentVolume) string {
	return cmp.Or(volume.Annotations[labels.RemoteClaim], volume.Spec.ClaimRef.Name)
}
