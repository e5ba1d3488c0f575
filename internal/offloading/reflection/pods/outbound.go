// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/pods/intent"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/refusals"
)

// syncOutbound executes the outbound step of a pod.
func (p *Pods) syncOutbound(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	mapping, facts := p.observe(key)
	switch step := podplan.Plan(&facts).Outbound; {
	case step.Retry:
		return 0, engine.ErrNotSynced
	case step.Delete:
		return p.deleteShadow(ctx, mapping, &facts, step.Period)
	case step.Period > 0:
		return p.shorten(ctx, mapping, &facts, step.Period)
	case step.Unmanaged:
		p.engine.Recorder.Failed(facts.Local, Kind, events.ReasonFailed, engine.ErrUnmanaged)
		p.engine.CountFailure(key.Namespace, Kind)
	case step.Refuse:
		p.engine.Recorder.Failed(facts.Local, Kind, events.ReasonFailed, podspec.Unsent(facts.Local, facts.RunWithout))
		p.engine.CountFailure(key.Namespace, Kind)
	case step.Create:
		if err := p.held(ctx, facts.Local); err != nil {
			if facts.Now.Sub(facts.Local.CreationTimestamp.Time) > podplan.SettleTimeout {
				p.engine.Recorder.Failed(facts.Local, Kind, events.ReasonFailed, events.Here(err))
			}
			return podplan.SettleTimeout, nil // PodsOf requeues it
		}
		return p.apply(ctx, mapping, facts.Local, nil)
	case step.Amend:
		return p.apply(ctx, mapping, facts.Local, facts.Shadow)
	}
	return 0, nil
}

// policy is what a ShadowPod is created with, and keeps.
type policy struct {
	// kept: with the finalizer that keeps it until its pod is gone. tokens: with tokens for the API server of this cluster.
	kept, tokens bool
}

// isKept reports whether a ShadowPod has the finalizer that keeps it until its pod is gone.
func isKept(shadow metav1.Object) bool {
	return slices.Contains(shadow.GetFinalizers(), labels.FinalizerPodGone)
}

// policyOf returns the policy of the ShadowPod of a pod; shadow is nil if it is new. Once it is sent, its policy must not change: it would be
// applied once more before its event arrives. Without the finalizer, the webhook of the peer adds it. Once that was seen, the peer is known to
// remove it as well, and the call of the webhook is saved.
func (p *Pods) policyOf(mapping *engine.Mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.memory(local)
	if known.policy == nil {
		known.policy = &policy{tokens: p.grantsTokens(mapping)}
	}
	if !known.Sent {
		known.policy.kept = p.peerKeeps.Load()
	}
	if shadow == nil && !mapping.Applier(Kind).Remembers(shadowPod, types.NamespacedName{Namespace: mapping.Remote, Name: local.Name}) {
		known.policy.tokens = p.grantsTokens(mapping)
	}
	if shadow != nil {
		return policy{isKept(shadow), known.policy.tokens}
	}
	return *known.policy
}

// comparedPolicy records the policy of a ShadowPod that an earlier process has created.
func (p *Pods) comparedPolicy(mapping *engine.Mapping, local *corev1.Pod, full *vkv1alpha1.ShadowPod) policy {
	found := policy{isKept(full), p.grantsTokens(mapping)}
	if len(podspec.TokenRequests(local)) > 0 {
		found.tokens = p.tokens != nil && podspec.MountsTokens(&full.Spec.Pod, local.Name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory(local).policy = &found
	return found
}

// grantsTokens reports whether new pods of a mapping get tokens.
func (p *Pods) grantsTokens(mapping *engine.Mapping) bool {
	return p.tokens != nil && mapping.APIServer()
}

// intent returns the ShadowPod that a pod gets if it is created now with a policy, with its fence also as an annotation, because we cache only metadata.
func (p *Pods) intent(mapping *engine.Mapping, local *corev1.Pod, with policy) (*vkapply.ShadowPodApplyConfiguration, error) {
	var options podspec.Options // without tokens, a pod does not reach our API server
	if with.tokens {
		server, err := p.options.APIServer()
		if err != nil && p.grantsTokens(mapping) {
			return nil, err
		}
		options.APIServer = server
	}
	want, err := podspec.ShadowPod(mapping.NamespaceMapping, local, options)
	if err != nil {
		return nil, err
	}
	if p.claims != nil {
		intent.WithClaims(local, want, p.claims.RemoteName)
	}
	if with.kept {
		want.WithFinalizers(labels.FinalizerPodGone)
	}
	return want.WithAnnotations(map[string]string{labels.Fence: string(local.UID)}), nil
}

func (p *Pods) apply(ctx context.Context, mapping *engine.Mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) (time.Duration, error) {
	with := p.policyOf(mapping, local, shadow)
	want, current, err := p.wanted(mapping, local, shadow, with)
	switch {
	case errors.Is(err, project.ErrRefused):
		p.engine.Recorder.Failed(local, Kind, events.ReasonFailed, err)
		p.engine.CountFailure(local.Namespace, Kind)
		return 0, nil // a change of the pod requeues it
	case err != nil:
		if time.Since(local.CreationTimestamp.Time) > podplan.SettleTimeout {
			p.engine.Recorder.Failed(local, Kind, events.ReasonFailed, err)
		}
		return 0, err
	}
	if with.tokens && p.grantsTokens(mapping) {
		if err := p.tokens.Ensure(ctx, mapping, local, shadow); err != nil {
			return 0, err // Ensure has reported it
		}
	}
	switch {
	case current && shadow == nil:
		return podplan.SettleTimeout, nil // the event of our write is still to come
	case current:
		p.satisfied(local, shadow)
		return 0, nil
	case shadow == nil && !p.markSending(local):
		return 0, nil
	case shadow != nil:
		full, err := p.ReadShadow(mapping, shadow)
		if err != nil || full == nil {
			return 0, err
		}
		again, err := p.change(mapping, local, intent.Amended(want, full), full)
		if again == 0 && err == nil {
			mapping.Applier(Kind).Satisfies(want) // what new pods get besides is not for this one: the next time, its metadata is enough
		}
		return again, err
	}
	defer p.sendingDone(local)
	return p.applied(local, true, mapping.Applier(Kind).ApplyTo(mapping.Context, want, nil))
}

// applied reports the result of a write, and returns when to try again.
func (p *Pods) applied(local *corev1.Pod, isNew bool, err error) (time.Duration, error) {
	switch {
	case err == nil:
		p.engine.Recorder.Resolved(local)
		if dropped := podspec.DroppedFields(local); isNew && len(dropped) > 0 {
			p.engine.Recorder.Failed(local, Kind, events.ReasonIncomplete, fmt.Errorf("in the remote cluster the pod has no %s; if it needs that, keep it off "+
				"virtual nodes: node affinity liqo.io/type NotIn virtual-node", strings.Join(dropped, ", ")))
		}
		return 0, nil
	case refusals.Final(err):
		p.engine.Recorder.Failed(local, Kind, events.ReasonFailed, err)
		p.engine.CountFailure(local.Namespace, Kind)
		return refusals.Retry, nil
	case refusals.Visible(err):
		p.engine.Recorder.Failed(local, Kind, events.ReasonFailed, err)
		return 0, err
	default:
		if refusals.Temporary(err) {
			p.engine.Recorder.Waits(local, Kind, err)
		}
		return 0, err
	}
}

// upToDate reports whether the metadata of the ShadowPod match the intent. While the cache does not have it, a write of ours a moment ago counts.
func (p *Pods) upToDate(mapping *engine.Mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata,
	want *vkapply.ShadowPodApplyConfiguration,
) (bool, error) {
	applier := mapping.Applier(Kind)
	if !applier.Remembers(shadowPod, types.NamespacedName{Namespace: mapping.Remote, Name: local.Name}) {
		return false, nil
	}
	if shadow == nil {
		return applier.JustWritten(want), nil
	}
	return intent.Recall(applier, want, shadow)
}

// ReadShadow reads the whole ShadowPod from the API server; nil if it is gone or another one has its name.
func (p *Pods) ReadShadow(mapping *engine.Mapping, shadow *metav1.PartialObjectMetadata) (*vkv1alpha1.ShadowPod, error) {
	live, err := p.liveShadow(mapping, shadow.Name)
	if err != nil || live.Shadow == nil || live.Shadow.UID != shadow.UID {
		return nil, err
	}
	return live.Shadow, nil
}

// markSending records that a ShadowPod is about to be written: from then on the local pod is kept until we know what became of that. It returns false if the
// pod is gone or being deleted. sendingDone follows once the write is answered.
func (p *Pods) markSending(local *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, _ := p.Local.Get(client.ObjectKeyFromObject(local)).(*corev1.Pod)
	if now == nil || now.UID != local.UID || now.DeletionTimestamp != nil {
		return false
	}
	known := p.memory(local)
	known.Sent, known.Sending = true, true
	return true
}

func (p *Pods) sendingDone(local *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory(local).Sending = false
}

// memory returns the memory of a pod. The caller holds the lock.
func (p *Pods) memory(local *corev1.Pod) *memory {
	known := p.memories[local.UID]
	if known == nil {
		known = &memory{}
		// Only the deletion event of the pod frees its memory, so none is kept for a pod that is gone already.
		if now := p.Local.Get(client.ObjectKeyFromObject(local)); now != nil && now.GetUID() == local.UID {
			p.memories[local.UID] = known
		}
	}
	return known
}
