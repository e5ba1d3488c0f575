// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
	"liqo.io/liqo/internal/offloading/shadow"
)

// part is a part of a change that the peer may refuse while it accepts the others. Otherwise a refused part would keep all later changes of the pod from the peer: an
// ephemeral container cannot even be removed from a pod.
type part string

// The parts, with what their refusal means for the pod.
const (
	ephemeral part = "the pod runs without its new ephemeral containers in the remote cluster"
	resources part = "the pod keeps its CPU and memory in the remote cluster"
)

// refusal is when the peer refused a part of a change, and the generation of the local pod that asked for it.
type refusal struct {
	at         time.Time
	generation int64
}

// change applies the intent for an existing ShadowPod. If the peer refuses a part of it, the other changes are applied without that, and the peer is asked again later.
func (p *Pods) change(mapping *engine.Mapping, local *corev1.Pod, intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) (time.Duration, error) {
	apply := func(leave []part) error {
		return mapping.Applier(Kind).ApplyTo(mapping.Context, without(intent, full, leave), full)
	}
	var ask, leave []part
	var wait time.Duration
	for _, one := range partsOf(intent, full) {
		if left := p.untilAsked(local, one); left > 0 {
			leave, wait = append(leave, one), max(wait, left)
		} else {
			ask = append(ask, one)
		}
	}
	err := apply(leave)
	if err == nil || !refusals.Visible(err) || len(ask) == 0 {
		again, err := p.applied(local, false, err)
		return max(again, wait), err
	}
	attempts := [][]part{ask}
	if len(ask) > 1 { // each may be the only one that is refused
		attempts = [][]part{ask[:1], ask[1:], ask}
	}
	var last error
	for _, refused := range attempts {
		if last = apply(append(leave[:len(leave):len(leave)], refused...)); last == nil || !refusals.Visible(last) {
			ask = refused
			break
		}
	}
	for _, one := range ask {
		p.refuse(local, one, err)
	}
	_, last = p.applied(local, false, last)
	return refusals.Retry, last
}

// partsOf returns the parts of a change.
func partsOf(intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) (parts []part) {
	desired := full.DeepCopy()
	desired.Spec.Pod = *intent.Spec.Pod
	if len(desired.Spec.Pod.EphemeralContainers) > len(full.Spec.Pod.EphemeralContainers) {
		parts = append(parts, ephemeral)
	}
	if shadow.Resized(full, desired) {
		parts = append(parts, resources)
	}
	return parts
}

// without returns the intent with what the ShadowPod has, instead of some parts.
func without(intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod, parts []part) *vkapply.ShadowPodApplyConfiguration {
	if len(parts) == 0 {
		return intent
	}
	pod, is := intent.Spec.Pod.DeepCopy(), &full.Spec.Pod
	for _, one := range parts {
		switch one {
		case ephemeral:
			pod.EphemeralContainers = is.EphemeralContainers
		case resources:
			for i := range pod.Containers {
				pod.Containers[i].Resources = is.Containers[i].Resources
			}
			for i := range pod.InitContainers {
				pod.InitContainers[i].Resources = is.InitContainers[i].Resources
			}
			pod.Resources = is.Resources
		}
	}
	changed, metadata := *intent, *intent.ObjectMetaApplyConfiguration
	if metadata.Annotations = maps.Clone(metadata.Annotations); full.Annotations[labels.LocalGeneration] != "" {
		metadata.Annotations[labels.LocalGeneration] = full.Annotations[labels.LocalGeneration]
	} else {
		delete(metadata.Annotations, labels.LocalGeneration) // the peer does not have that generation
	}
	changed.ObjectMetaApplyConfiguration = &metadata
	changed.Spec = vkapply.ShadowPodSpec().WithFence(*intent.Spec.Fence).WithPod(*pod)
	return &changed
}

// untilAsked returns how long not to ask the peer for a part again, after it refused.
func (p *Pods) untilAsked(local *corev1.Pod, one part) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, is := p.memory(local).refused[one]
	if !is || known.generation != local.Generation {
		return 0
	}
	return max(time.Until(known.at.Add(refusals.Retry)), 0)
}

// refuse records and reports that the peer has refused a part.
func (p *Pods) refuse(local *corev1.Pod, one part, err error) {
	p.mu.Lock()
	known := p.memory(local)
	if known.refused == nil {
		known.refused = map[part]refusal{}
	}
	known.refused[one] = refusal{time.Now(), local.Generation}
	p.mu.Unlock()
	p.engine.Recorder.Failed(local, Kind, events.ReasonFailed, fmt.Errorf("%s: %w", one, err))
	p.engine.CountFailure(local.Namespace, Kind)
}
