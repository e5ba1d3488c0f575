// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
)

// held returns why a new pod must wait for its data.
func (p *Pods) held(ctx context.Context, local *corev1.Pod) error {
	if p.claims == nil {
		return nil
	}
	return p.claims.Held(ctx, local)
}

// withClaims has a pod use the claims of the peer that have its data. Those that Kubernetes made here for its ephemeral volumes become ordinary ones: in the
// peer, Kubernetes would make others, which belong to the pod there.
func (p *Pods) withClaims(local *corev1.Pod, intent *vkapply.ShadowPodApplyConfiguration) {
	if p.claims == nil {
		return
	}
	for i := range intent.Spec.Pod.Volumes {
		volume := &intent.Spec.Pod.Volumes[i]
		switch {
		case volume.Ephemeral != nil:
			if remote, is := p.claims.RemoteName(local.Namespace, local.Name+"-"+volume.Name); is {
				volume.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: remote}}
			}
		case volume.PersistentVolumeClaim != nil:
			if remote, is := p.claims.RemoteName(local.Namespace, volume.PersistentVolumeClaim.ClaimName); is && remote != volume.PersistentVolumeClaim.ClaimName {
				renamed := *volume.PersistentVolumeClaim // shared with the local pod
				renamed.ClaimName, volume.PersistentVolumeClaim = remote, &renamed
			}
		}
	}
}
