// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/pods/intent"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

// refusal is when the peer refused a part of a change, and the generation of the local pod that asked for it.
type refusal struct {
	at         time.Time
	generation int64
}

// change applies the intent for an existing ShadowPod. What the peer refuses of it is left out, and the peer is asked again later.
func (p *Pods) change(mapping *engine.Mapping, local *corev1.Pod, want *vkapply.ShadowPodApplyConfiguration, now *vkv1alpha1.ShadowPod) (time.Duration, error) {
	apply := func(leave []intent.Part) error {
		return mapping.Applier(Kind).ApplyTo(mapping.Context, intent.Without(want, now, leave), now)
	}
	var ask, leave []intent.Part
	var wait time.Duration
	for _, part := range intent.PartsOf(want, now) {
		if left := p.untilAsked(local, part); left > 0 {
			leave, wait = append(leave, part), max(wait, left)
		} else {
			ask = append(ask, part)
		}
	}
	err := apply(leave)
	if err == nil || !refusals.Visible(err) || len(ask) == 0 {
		again, err := p.applied(local, false, err)
		return max(again, wait), err
	}
	attempts := [][]intent.Part{ask}
	if len(ask) > 1 { // each may be the only one that is refused
		attempts = [][]intent.Part{ask[:1], ask[1:], ask}
	}
	var last error
	for _, refused := range attempts {
		if last = apply(append(leave[:len(leave):len(leave)], refused...)); last == nil || !refusals.Visible(last) {
			ask = refused
			break
		}
	}
	for _, part := range ask {
		p.refuse(local, part, err)
	}
	_, last = p.applied(local, false, last)
	return refusals.Retry, last
}

// untilAsked returns how long not to ask the peer for a part again, after it refused.
func (p *Pods) untilAsked(local *corev1.Pod, part intent.Part) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.memory(local).refused[part]
	if !ok || known.generation != local.Generation {
		return 0
	}
	return max(time.Until(known.at.Add(refusals.Retry)), 0)
}

// refuse records and reports that the peer has refused a part.
func (p *Pods) refuse(local *corev1.Pod, part intent.Part, err error) {
	p.mu.Lock()
	known := p.memory(local)
	if known.refused == nil {
		known.refused = map[intent.Part]refusal{}
	}
	known.refused[part] = refusal{time.Now(), local.Generation}
	p.mu.Unlock()
	p.engine.Recorder.Failed(local, Kind, events.ReasonFailed, fmt.Errorf("%s: %w", part, err))
	p.engine.CountFailure(local.Namespace, Kind)
}
