// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/storage/data"
)

// placeholder is the source of volumes of virtual nodes, where no kubelet mounts anything. The path is part of the documented interface.
const placeholder = "/tmp/liqo-placeholder"

// stays returns why the data of a volume must not be deleted; empty if its user has deleted the claim and the policy requires it. volume is what was
// known of it, without a UID if it could not be saved; volumes are those that exist, and lives reports whether the claim does.
func stays(volume *corev1.PersistentVolume, volumes []corev1.PersistentVolume, lives bool) string {
	i := slices.IndexFunc(volumes, func(one corev1.PersistentVolume) bool { return one.Name == volume.Name })
	switch {
	case volume.Spec.ClaimRef == nil:
		return "the volume belongs to no claim"
	case lives:
		return fmt.Sprintf("claim %s/%s exists", volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name)
	case i < 0 && volume.UID == "":
		return "" // nothing has ever used it
	case i < 0 || volumes[i].UID != volume.UID:
		return "the volume is gone, or another one has its name"
	case volumes[i].Spec.ClaimRef == nil || volumes[i].Spec.ClaimRef.UID != volume.Spec.ClaimRef.UID:
		return "the volume was given to another claim"
	case volumes[i].Status.Phase != corev1.VolumeReleased && volumes[i].Status.Phase != corev1.VolumeFailed:
		return fmt.Sprintf("the volume is %s", volumes[i].Status.Phase)
	case volumes[i].Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return fmt.Sprintf("the reclaim policy of the volume is %s", volumes[i].Spec.PersistentVolumeReclaimPolicy)
	}
	return ""
}

// realClaim returns the claim that holds the data of a claim in this cluster. Its label names the volume; an annotation of the volume that named the claim
// would let a user who may write volumes have us delete any claim. class is empty for the default class.
// source is the claim in the namespace whose data it starts with; empty for none.
func realClaim(claim *corev1.PersistentVolumeClaim, namespace, class, node, source string) *coreapply.PersistentVolumeClaimApplyConfiguration {
	own := map[string]string{}
	maps.Copy(own, claim.Labels)
	own[labels.AppPartOf], own[labels.VirtualClaimNamespace], own[labels.VirtualVolume] = labels.PartOf, claim.Namespace, data.VolumePrefix+string(claim.UID)
	annotations := map[string]string{data.SelectedNode: node}
	if len(validation.IsValidLabelValue(claim.Name)) == 0 {
		own[labels.VirtualClaimName] = claim.Name
	} else { // names of claims may be longer than values of labels
		annotations[labels.VirtualClaimName] = claim.Name
	}
	spec := coreapply.PersistentVolumeClaimSpec().WithAccessModes(claim.Spec.AccessModes...).WithResources(requests(claim))
	if claim.Spec.VolumeMode != nil {
		spec.WithVolumeMode(*claim.Spec.VolumeMode)
	}
	if class != "" {
		spec.WithStorageClassName(class)
	}
	if source != "" {
		spec.WithDataSource(coreapply.TypedLocalObjectReference().WithKind(claimKind).WithName(source))
	}
	return coreapply.PersistentVolumeClaim(string(claim.UID), namespace).WithLabels(own).
		WithAnnotations(annotations).WithSpec(spec)
}

func requests(claim *corev1.PersistentVolumeClaim) *coreapply.VolumeResourceRequirementsApplyConfiguration {
	return coreapply.VolumeResourceRequirements().WithRequests(corev1.ResourceList{
		corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
	})
}

// localVolume returns the volume for a claim whose data is in the volume real of this cluster.
func localVolume(name string, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, real *corev1.PersistentVolume) *corev1.PersistentVolume {
	volume := newVolume(name, claim, class)
	volume.Spec.PersistentVolumeSource = *real.Spec.PersistentVolumeSource.DeepCopy()
	volume.Spec.NodeAffinity = onRealNodes(real.Spec.NodeAffinity)
	volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: real.Spec.Capacity[corev1.ResourceStorage]}
	if len(class.MountOptions) == 0 {
		volume.Spec.MountOptions = real.Spec.MountOptions
	}
	return volume
}

// location is where a provider is to keep the data of a claim.
type location struct {
	// clusterID is the provider, node its virtual node here.
	clusterID, node string
	// class is the provider's storage class, source the claim there whose data it starts with; empty for none.
	class, source string
}

// remoteVolume returns the volume for a claim whose data is at a provider.
func remoteVolume(name string, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, at location) *corev1.PersistentVolume {
	volume := newVolume(name, claim, class)
	volume.Labels = map[string]string{labels.RemoteClusterID: at.clusterID, labels.AppPartOf: labels.PartOf}
	volume.Annotations = map[string]string{labels.RemoteStorageClass: at.class}
	if at.source != "" {
		volume.Annotations[labels.RemoteDataSource] = at.source
	}
	volume.Spec.HostPath = &corev1.HostPathVolumeSource{Path: placeholder}
	volume.Spec.NodeAffinity = onNode(at.node)
	return volume
}

func newVolume(name string, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *corev1.PersistentVolume {
	policy := corev1.PersistentVolumeReclaimDelete // as Kubernetes' default
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: policy,
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			MountOptions:                  class.MountOptions,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
		},
	}
}
