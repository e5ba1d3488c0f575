// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"

	"liqo.io/liqo/apis/labels"
)

// remoteClaim returns the claim at the provider: all that the user's claim asks for, with the provider's class. own are its labels.
func remoteClaim(
	claim *corev1.PersistentVolumeClaim, volume string, at types.NamespacedName, class string, own map[string]string,
) *coreapply.PersistentVolumeClaimApplyConfiguration {
	spec := coreapply.PersistentVolumeClaimSpec().WithAccessModes(claim.Spec.AccessModes...).WithStorageClassName(class).
		WithResources(coreapply.VolumeResourceRequirements().WithRequests(corev1.ResourceList{
			corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
		}))
	if claim.Spec.VolumeMode != nil {
		spec.WithVolumeMode(*claim.Spec.VolumeMode)
	}
	return coreapply.PersistentVolumeClaim(at.Name, at.Namespace).WithLabels(maps.Clone(own)).
		WithAnnotations(map[string]string{labels.VirtualVolume: volume}).WithSpec(spec)
}
