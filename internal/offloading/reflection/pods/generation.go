// SPDX-License-Identifier: Apache-2.0

package pods

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// applied is the generation that a ShadowPod has, and the last generation of the local pod that is the same for the peer: tolerations that we extend ourselves,
// for example, are not sent. Such a generation alone costs no write.
type applied struct{ has, is int64 }

// asApplied returns the local pod with the generation that its ShadowPod has: so its intent differs only if something else does.
func asApplied(local *corev1.Pod, shadow metav1.Object) *corev1.Pod {
	if has := podstatus.HasGeneration(shadow); local.Generation > 1 && has != local.Generation {
		as := *local
		as.Generation = has
		return &as
	}
	return local
}

// wanted returns the intent of a pod, and whether its ShadowPod matches it: with the generation that the ShadowPod has, or,
// if it does not match then, with that of the pod.
func (p *Pods) wanted(mapping *engine.Mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata,
	with policy,
) (want *vkapply.ShadowPodApplyConfiguration, current bool, err error) {
	if shadow != nil {
		if as := asApplied(local, shadow); as != local {
			if want, err = p.intent(mapping, as, with); err != nil {
				return nil, false, err
			}
			if current, err = p.upToDate(mapping, as, shadow, want); current || err != nil {
				return want, current, err
			}
		}
	}
	if want, err = p.intent(mapping, local, with); err != nil {
		return nil, false, err
	}
	current, err = p.upToDate(mapping, local, shadow, want)
	return want, current, err
}

// satisfied records that the ShadowPod has all that the local pod has to send.
func (p *Pods) satisfied(local *corev1.Pod, shadow metav1.Object) {
	now := applied{podstatus.HasGeneration(shadow), local.Generation}
	p.mu.Lock()
	known := p.memory(local)
	isNew := known.applied != now && now.has != now.is && now.is > 1
	known.applied = now
	p.mu.Unlock()
	if isNew {
		p.Inbound.Add(client.ObjectKeyFromObject(local))
	}
}
