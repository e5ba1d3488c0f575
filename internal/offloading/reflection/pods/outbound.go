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
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
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

// intent is the ShadowPod that a pod gets if it is created now. kept: with the finalizer that keeps it until its pod is gone. tokens: with tokens.
type intent struct {
	shadowPod    *vkapply.ShadowPodApplyConfiguration
	kept, tokens bool
}

// intent returns the intent of a pod.
func (p *Pods) intent(mapping *engine.Mapping, local *corev1.Pod, kept bool) (intent, error) {
	server, err := p.apiServer(mapping)
	if err != nil {
		return intent{}, err
	}
	shadowPod, err := p.intentWith(mapping, local, kept, server)
	return intent{shadowPod, kept, server.Enabled}, err
}

// isKept reports whether a ShadowPod has the finalizer that keeps it until its pod is gone.
func isKept(shadow metav1.Object) bool {
	return slices.Contains(shadow.GetFinalizers(), labels.FinalizerPodGone)
}

// keepsNew reports whether the new ShadowPod of a pod is created with that finalizer. Otherwise the webhook of the peer adds it. Once that was seen, the peer is
// known to remove it as well, and the call of the webhook is saved.
func (p *Pods) keepsNew(local *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.memory(local)
	if !known.Sent { // afterwards it must not change: the ShadowPod would be applied once more before its event arrives
		known.kept = p.peerKeeps.Load()
	}
	return known.kept
}

// apiServer returns how new pods of a mapping reach our API server. Without tokens they do not reach it.
func (p *Pods) apiServer(mapping *engine.Mapping) (podspec.APIServer, error) {
	if p.tokens == nil || !mapping.APIServer() {
		return podspec.APIServer{}, nil
	}
	return p.options.APIServer()
}

// intentOfOtherPolicy returns the intent that the pod had if it was created while its namespace had the other token policy; nil if there is none. With it
// we recognise a ShadowPod that was created under the other policy.
func (p *Pods) intentOfOtherPolicy(mapping *engine.Mapping, local *corev1.Pod, want intent) *vkapply.ShadowPodApplyConfiguration {
	var server podspec.APIServer
	var err error
	if p.tokens == nil {
		return nil
	}
	if !want.tokens {
		server, err = p.options.APIServer()
	}
	if err != nil {
		return nil // the comparison with the whole ShadowPod decides
	}
	other, err := p.intentWith(mapping, local, want.kept, server)
	if err != nil {
		return nil
	}
	return other
}

// intentWith returns the ShadowPod with its fence also as an annotation, because we cache only metadata.
func (p *Pods) intentWith(mapping *engine.Mapping, local *corev1.Pod, kept bool, server podspec.APIServer) (*vkapply.ShadowPodApplyConfiguration, error) {
	intent, err := podspec.ShadowPod(mapping.NamespaceMapping, local, podspec.Options{APIServer: server})
	if err != nil {
		return nil, err
	}
	p.withClaims(local, intent)
	if kept {
		intent.WithFinalizers(labels.FinalizerPodGone)
	}
	return intent.WithAnnotations(map[string]string{labels.Fence: string(local.UID)}), nil
}

func (p *Pods) apply(ctx context.Context, mapping *engine.Mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) (time.Duration, error) {
	kept := shadow != nil && isKept(shadow) || shadow == nil && p.keepsNew(local)
	want, current, otherPolicy, err := p.wanted(mapping, local, shadow, kept)
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
	switch {
	case otherPolicy && shadow == nil:
		return podplan.SettleTimeout, nil // the event of our write is still to come
	case otherPolicy:
		return 0, nil // a pod keeps the policy that it was created under
	}
	if want.tokens {
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
		again, err := p.change(mapping, local, amended(want.shadowPod, full), full)
		if again == 0 && err == nil {
			mapping.Applier(Kind).Satisfies(want.shadowPod) // what new pods get besides is not for this one: the next time, its metadata is enough
		}
		return again, err
	}
	defer p.sendingDone(local)
	return p.applied(local, true, mapping.Applier(Kind).ApplyTo(mapping.Context, want.shadowPod, nil))
}

// applied reports the result of a write, and returns when to try again.
func (p *Pods) applied(local *corev1.Pod, isNew bool, err error) (time.Duration, error) {
	switch {
	case err == nil:
		p.engine.Recorder.Resolved(local)
		if dropped := podspec.DroppedFields(local); isNew && len(dropped) > 0 {
			p.engine.Recorder.Failed(local, Kind, events.ReasonIncomplete, fmt.Errorf("in the remote cluster the pod has no %s; if it needs that, keep it off virtual nodes: node affinity liqo.io/type NotIn virtual-node", strings.Join(dropped, ", ")))
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

// upToDate reports whether the ShadowPod matches the intent (current), or the intent of the other token policy (otherPolicy), as far as its metadata shows.
// While the cache does not have the ShadowPod, a write of ours a moment ago counts.
func (p *Pods) upToDate(mapping *engine.Mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata, want intent) (current, otherPolicy bool, err error) {
	applier := mapping.Applier(Kind)
	if !applier.Remembers(shadowPod, types.NamespacedName{Namespace: mapping.Remote, Name: local.Name}) {
		return false, false, nil
	}
	matches := func(one *vkapply.ShadowPodApplyConfiguration) (bool, error) {
		if shadow == nil {
			return applier.JustWritten(one), nil
		}
		return recall(applier, one, shadow)
	}
	if current, err = matches(want.shadowPod); current || err != nil {
		return current, false, err
	}
	other := p.intentOfOtherPolicy(mapping, local, want)
	if other == nil {
		return false, false, nil
	}
	otherPolicy, err = matches(other)
	return false, otherPolicy, err
}

// recall is Applier.Recall. The finalizer of an intent may also have been added by the webhook of the peer, so that we do not own it.
func recall(applier *ssa.Applier, one *vkapply.ShadowPodApplyConfiguration, shadow client.Object) (held bool, err error) {
	if held, err = applier.Recall(one, shadow); held || err != nil || len(one.Finalizers) == 0 {
		return held, err
	}
	added, metadata := *one, *one.ObjectMetaApplyConfiguration
	metadata.Finalizers = nil
	added.ObjectMetaApplyConfiguration = &metadata
	return applier.Recall(&added, shadow)
}

// recallAmended recalls a ShadowPod that has of an intent what an existing one gets. It then satisfies the whole intent.
func recallAmended(applier *ssa.Applier, intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) error {
	held, err := recall(applier, amended(intent, full), full)
	if held {
		applier.Satisfies(intent)
	}
	return err
}

// amended returns the intent for an existing ShadowPod: only what Kubernetes lets change of a pod follows the local pod.
func amended(intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) *vkapply.ShadowPodApplyConfiguration {
	changed, metadata := *intent, *intent.ObjectMetaApplyConfiguration
	spec := podspec.Amended(&full.Spec.Pod, intent.Spec.Pod)
	changed.Spec = vkapply.ShadowPodSpec().WithFence(*intent.Spec.Fence).WithPod(*spec)
	metadata.Annotations = podspec.WithoutUnread(metadata.Annotations, spec)
	changed.ObjectMetaApplyConfiguration = &metadata
	// The UID is a precondition: if the ShadowPod has just been deleted, applying a change must not create it again, since its pod may have ended.
	return changed.WithUID(full.UID)
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
