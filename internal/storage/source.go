// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/storage/data"
)

// claimKind is the only kind of data source that a virtual class knows.
const claimKind = "PersistentVolumeClaim"

// sourceOf returns the name of the claim whose data a claim is to start with; empty if it starts empty. reason is why it cannot.
func sourceOf(claim *corev1.PersistentVolumeClaim) (name, reason string) {
	var kind, group, namespace string
	optional := func(text *string) string {
		if text == nil {
			return ""
		}
		return *text
	}
	switch ref, source := claim.Spec.DataSourceRef, claim.Spec.DataSource; {
	case ref != nil:
		kind, name, group, namespace = ref.Kind, ref.Name, optional(ref.APIGroup), optional(ref.Namespace)
	case source != nil:
		kind, name, group = source.Kind, source.Name, optional(source.APIGroup)
	default:
		return "", ""
	}
	switch {
	case namespace != "" && namespace != claim.Namespace:
		return "", "spec.dataSourceRef.namespace: a claim of a virtual storage class starts with the data of a claim in its own namespace"
	case kind == claimKind && group == "":
		return name, ""
	case kind == "VolumeSnapshot":
		return "", "spec.dataSource: a VolumeSnapshot belongs to a driver of one cluster, and is not reflected; name a PersistentVolumeClaim of " +
			"this namespace, which is copied"
	}
	return "", fmt.Sprintf(
		"spec.dataSource: a claim of a virtual storage class knows no %s; name a PersistentVolumeClaim of this namespace, which is copied",
		cmp.Or(kind, "source without a kind"),
	)
}

// verdict is what becomes of a claim with a data source.
type verdict int

const (
	// copied: the source is usable.
	copied verdict = iota
	// never: the claim must change.
	never
	// later: the source may become usable.
	later
	// elsewhere: another node may do.
	elsewhere
)

// judge decides whether a claim can start with the data of another one in a cluster: that of clusterID, or this one if that is empty. Copies are made by the
// driver that has the data, so within one cluster only. source and volume are nil if they do not exist.
func judge(claim, source *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, name, clusterID string) (verdict, string) {
	switch {
	case source == nil || source.DeletionTimestamp != nil:
		return later, fmt.Sprintf("claim %s (spec.dataSource) does not exist, or is being deleted", name)
	case source.Status.Phase != corev1.ClaimBound:
		return later, fmt.Sprintf("claim %s (spec.dataSource) is %s: it has no data yet, or its volume moves", name, cmp.Or(source.Status.Phase, corev1.ClaimPending))
	case volume == nil || volume.DeletionTimestamp != nil:
		return later, fmt.Sprintf("the volume of claim %s (spec.dataSource) is missing; it may be moving", name)
	case volume.Annotations[data.Provisioned] != data.Provisioner || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != source.UID:
		return never, fmt.Sprintf("claim %s (spec.dataSource) is not of a virtual storage class", name)
	case modeOf(claim) != modeOf(source):
		return never, fmt.Sprintf("spec.volumeMode: claim %s (spec.dataSource) has %s", name, modeOf(source))
	case claim.Spec.Resources.Requests.Storage().Cmp(*volume.Spec.Capacity.Storage()) < 0:
		return never, fmt.Sprintf(
			"spec.resources.requests.storage: claim %s (spec.dataSource) has %s, and a copy needs as much", name, volume.Spec.Capacity.Storage(),
		)
	case volume.Labels[labels.RemoteClusterID] != clusterID:
		return elsewhere, fmt.Sprintf("the data of claim %s (spec.dataSource) is in another cluster, and only its driver can copy it: have the "+
			"pod run where that data is, or move it first with `liqoctl move volume %s -n %s`",
			name, name, claim.Namespace)
	case clusterID != "" && volume.Annotations[labels.RemoteVolume] == "":
		// Until then, nothing here knows the claim over there that holds the data.
		return later, fmt.Sprintf("where the data of claim %s (spec.dataSource) is at the provider is not recorded yet", name)
	}
	return copied, ""
}

func modeOf(claim *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	if claim.Spec.VolumeMode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *claim.Spec.VolumeMode
}
