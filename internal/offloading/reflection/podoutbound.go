// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vkapply "liqo.io/liqo/apis/applyconfiguration/virtualkubelet/v1alpha1"
	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/fanin"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/shadow"
)

// settleTimeout is how long we wait for what usually follows within moments: the event of our own write, or the agreement of the clusters on addresses.
const settleTimeout = 10 * time.Second

// syncOutbound applies the ShadowPod of a local pod, or deletes it.
func (p *pods) syncOutbound(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	mapping, _ := p.engine.mappings.local(key.Namespace)
	if mapping == nil || !p.isCompared(mapping) {
		return 0, nil // compareAll enqueues all pods of the mapping
	}
	if !p.local.Current(fanin.Every) {
		return 0, errNotSynced
	}
	remoteKey := types.NamespacedName{Namespace: mapping.Remote, Name: key.Name}
	local, _ := p.local.Get(key).(*corev1.Pod)
	shadow, _ := p.shadows.Get(remoteKey).(*metav1.PartialObjectMetadata)
	ours := shadow != nil && mapping.Reflected(shadow)
	switch {
	case ours && shadow.DeletionTimestamp != nil:
		return 0, nil // its deletion requeues the pod
	case ours && (local == nil || local.DeletionTimestamp != nil || shadow.Annotations[labels.Fence] != string(local.UID)):
		// In the foreground: the ShadowPod stays as long as its pod, so that no other pod gets the name meanwhile.
		if err := p.engine.remote.remove(mapping.ctx, shadow, metav1.DeletePropagationForeground); err != nil {
			if local != nil && visible(err) { // the local pod stays Terminating, or its successor Pending
				p.engine.recorder.failed(local, podKind, reasonNotDeleted, err)
			}
			return 0, err
		}
		mapping.appliers[podKind].Forget(remoteKey)
		return 0, nil
	case ours && project.Finished(local.Status.Phase) && p.runsRemotely(mapping, local, shadow):
		// The local pod has failed here, for example because the node was lost, and a replacement may run already: end the remote one.
		return 0, p.engine.remote.remove(mapping.ctx, shadow, metav1.DeletePropagationForeground)
	case local == nil || local.DeletionTimestamp != nil || mapping.terminating.Load() || project.Finished(local.Status.Phase):
		return 0, nil
	case shadow != nil && !ours:
		p.engine.recorder.failed(local, podKind, reasonFailed, errUnmanaged)
		p.engine.counts.failed(key.Namespace, podKind)
		return 0, nil // its deletion requeues the pod
	case shadow == nil && !p.shadows.Current(remoteKey.Namespace):
		return 0, errNotSynced
	case shadow == nil && p.predecessor(mapping, remoteKey):
		return 0, nil // its deletion requeues the pod
	case shadow == nil && (p.endedPod(local) != nil || p.vanished(local)):
		p.inbound.add(key)
		return 0, nil // it must not run again: the inbound direction reports its end
	case shadow == nil:
		if err := p.held(ctx, local); err != nil {
			if time.Since(local.CreationTimestamp.Time) > settleTimeout {
				p.engine.recorder.failed(local, podKind, reasonFailed, err)
			}
			return settleTimeout, nil // PodsOf requeues it
		}
	}
	return p.apply(ctx, mapping, local, shadow)
}

func (p *pods) isCompared(mapping *mapping) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.compared[mapping]
}

// predecessor reports whether the peer still has a pod of ours with this name: that of another local pod, or of this one if its ShadowPod was lost.
func (p *pods) predecessor(mapping *mapping, remoteKey types.NamespacedName) bool {
	remote, _ := p.remote.Get(remoteKey).(*corev1.Pod)
	return remote != nil && remote.Labels[labels.Origin] == mapping.LocalID && remote.Annotations[labels.Fence] != ""
}

// runsRemotely reports whether the remote pod of a local pod runs.
func (p *pods) runsRemotely(mapping *mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) bool {
	remote, _ := p.remote.Get(types.NamespacedName{Namespace: mapping.Remote, Name: local.Name}).(*corev1.Pod)
	return remote != nil && p.remote.Current(mapping.Remote) && p.belongs(mapping, local, remote, shadow) && !project.Finished(remote.Status.Phase) && remote.DeletionTimestamp == nil
}

// vanished reports whether a pod that must not run twice has disappeared from the peer, with its ShadowPod, while no process observed it: it may have
// finished. If we observed the remote pod in a terminal phase, memory.last has it, and endedPod decides.
func (p *pods) vanished(local *corev1.Pod) bool {
	if local.Spec.RestartPolicy == corev1.RestartPolicyAlways || local.Spec.RestartPolicy == "" || local.Status.StartTime == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.memories[local.UID]
	return kept == nil || kept.last == nil
}

// intent returns the ShadowPod that a pod gets if it is created now, and whether that has tokens.
func (p *pods) intent(mapping *mapping, local *corev1.Pod) (intent *vkapply.ShadowPodApplyConfiguration, tokens bool, err error) {
	server, err := p.engine.apiServer(mapping)
	if err != nil {
		return nil, false, err
	}
	intent, err = p.intentWith(mapping, local, server)
	return intent, server.Enabled, err
}

// intentOfOtherPolicy returns the intent that the pod had if it was created while its namespace had the other token policy; nil if there is none. With it
// we recognise a ShadowPod that was created under the other policy.
func (p *pods) intentOfOtherPolicy(mapping *mapping, local *corev1.Pod, tokens bool) *vkapply.ShadowPodApplyConfiguration {
	var server project.APIServer
	var err error
	if p.engine.tokens == nil {
		return nil
	}
	if !tokens {
		server, err = p.engine.options.APIServer()
	}
	if err != nil {
		return nil // the comparison with the whole ShadowPod decides
	}
	intent, err := p.intentWith(mapping, local, server)
	if err != nil {
		return nil
	}
	return intent
}

// intentWith returns the ShadowPod with its fence also as an annotation, because we cache only metadata.
func (p *pods) intentWith(mapping *mapping, local *corev1.Pod, server project.APIServer) (*vkapply.ShadowPodApplyConfiguration, error) {
	intent, err := project.ShadowPod(mapping.NamespaceMapping, local, project.PodOptions{APIServer: server})
	if err != nil {
		return nil, err
	}
	p.withClaims(local, intent)
	return intent.WithAnnotations(map[string]string{labels.Fence: string(local.UID)}), nil
}

func (p *pods) apply(ctx context.Context, mapping *mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) (time.Duration, error) {
	intent, tokens, err := p.intent(mapping, local)
	switch {
	case errors.Is(err, project.ErrRefused):
		p.engine.recorder.failed(local, podKind, reasonFailed, err)
		p.engine.counts.failed(local.Namespace, podKind)
		return 0, nil // a change of the pod requeues it
	case err != nil:
		if time.Since(local.CreationTimestamp.Time) > settleTimeout {
			p.engine.recorder.failed(local, podKind, reasonFailed, err)
		}
		return 0, err
	}
	current, otherPolicy, err := p.upToDate(mapping, local, shadow, intent, tokens)
	switch {
	case err != nil:
		return 0, err
	case otherPolicy && shadow == nil:
		return settleTimeout, nil // the event of our write is still to come
	case otherPolicy:
		return 0, nil // a pod keeps the policy that it was created under
	}
	if tokens {
		if err := p.engine.tokens.ensure(ctx, mapping, local, shadow); err != nil {
			return 0, err // ensure has reported it
		}
	}
	switch {
	case current && shadow == nil:
		return settleTimeout, nil // the event of our write is still to come
	case current:
		return 0, nil
	case shadow == nil && !p.markSent(local):
		return 0, nil
	case shadow != nil:
		full, err := p.readShadow(mapping, shadow)
		if err != nil || full == nil {
			return 0, err
		}
		return p.change(mapping, local, amended(intent, full), full)
	}
	return p.applied(local, shadow == nil, mapping.appliers[podKind].ApplyTo(mapping.ctx, intent, nil))
}

// applied reports the result of a write, and returns when to try again.
func (p *pods) applied(local *corev1.Pod, isNew bool, err error) (time.Duration, error) {
	switch {
	case err == nil:
		p.engine.recorder.succeeded(local)
		if dropped := project.DroppedFields(local); isNew && len(dropped) > 0 {
			p.engine.recorder.failed(local, podKind, reasonIncomplete, fmt.Errorf("in the remote cluster the pod has no %s; if it needs that, keep it off virtual nodes: node affinity liqo.io/type NotIn virtual-node", strings.Join(dropped, ", ")))
		}
		return 0, nil
	case refused(err):
		p.engine.recorder.failed(local, podKind, reasonFailed, err)
		p.engine.counts.failed(local.Namespace, podKind)
		return refusedRetry, nil
	default:
		if visible(err) {
			p.engine.recorder.failed(local, podKind, reasonFailed, err)
		}
		return 0, err
	}
}

// upToDate reports whether the ShadowPod matches the intent (current), or the intent of the other token policy (otherPolicy), as far as its metadata shows.
// While the cache does not have the ShadowPod, a write of ours a moment ago counts.
func (p *pods) upToDate(mapping *mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata, intent *vkapply.ShadowPodApplyConfiguration, tokens bool) (current, otherPolicy bool, err error) {
	applier := mapping.appliers[podKind]
	if !applier.Remembers(shadowPod, types.NamespacedName{Namespace: mapping.Remote, Name: local.Name}) {
		return false, false, nil
	}
	matches := func(one *vkapply.ShadowPodApplyConfiguration) (bool, error) {
		if shadow == nil {
			return applier.JustWritten(one), nil
		}
		return applier.Recall(one, shadow)
	}
	if current, err = matches(intent); current || err != nil {
		return current, false, err
	}
	other := p.intentOfOtherPolicy(mapping, local, tokens)
	if other == nil {
		return false, false, nil
	}
	otherPolicy, err = matches(other)
	return false, otherPolicy, err
}

// change applies the intent for an existing ShadowPod. If the peer refuses to resize the pod, for instance because it grants no more, or because its
// version of Liqo does not know how, the other changes are applied without that, and the peer is asked again later.
func (p *pods) change(mapping *mapping, local *corev1.Pod, intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) (time.Duration, error) {
	applier := mapping.appliers[podKind]
	desired := full.DeepCopy()
	desired.Spec.Pod = *intent.Spec.Pod
	if !shadow.Resized(full, desired) {
		return p.applied(local, false, applier.ApplyTo(mapping.ctx, intent, full))
	}
	if wait := p.untilResize(local); wait > 0 {
		_, err := p.applied(local, false, applier.ApplyTo(mapping.ctx, unresized(intent, full), full))
		return wait, err
	}
	err := applier.ApplyTo(mapping.ctx, intent, full)
	if err == nil || !visible(err) {
		return p.applied(local, false, err)
	}
	p.mu.Lock()
	known := p.memory(local)
	known.resizeRefused, known.resizeGeneration = time.Now(), local.Generation
	p.mu.Unlock()
	p.engine.recorder.failed(local, podKind, reasonFailed, fmt.Errorf("the pod keeps its CPU and memory in the remote cluster: %w", err))
	p.engine.counts.failed(local.Namespace, podKind)
	_, err = p.applied(local, false, applier.ApplyTo(mapping.ctx, unresized(intent, full), full))
	return refusedRetry, err
}

// untilResize returns how long not to ask the peer again to resize a pod, after it refused.
func (p *pods) untilResize(local *corev1.Pod) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.memory(local)
	if known.resizeGeneration != local.Generation {
		return 0
	}
	return max(time.Until(known.resizeRefused.Add(refusedRetry)), 0)
}

// unresized returns the intent with the resources that the ShadowPod has.
func unresized(intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) *vkapply.ShadowPodApplyConfiguration {
	pod := intent.Spec.Pod.DeepCopy()
	for i := range pod.Containers {
		pod.Containers[i].Resources = full.Spec.Pod.Containers[i].Resources
	}
	for i := range pod.InitContainers {
		pod.InitContainers[i].Resources = full.Spec.Pod.InitContainers[i].Resources
	}
	pod.Resources = full.Spec.Pod.Resources
	changed := *intent
	changed.Spec = vkapply.ShadowPodSpec().WithFence(*intent.Spec.Fence).WithPod(*pod)
	return &changed
}

// amended returns the intent for an existing ShadowPod: only what Kubernetes lets change of a pod follows the local pod.
func amended(intent *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) *vkapply.ShadowPodApplyConfiguration {
	changed := *intent
	changed.Spec = vkapply.ShadowPodSpec().WithFence(*intent.Spec.Fence).WithPod(*project.Amended(&full.Spec.Pod, intent.Spec.Pod))
	// The UID is a precondition: if the ShadowPod has just been deleted, applying a change must not create it again, since its pod may have ended.
	return changed.WithUID(full.UID)
}

// readShadow reads the whole ShadowPod from the API server; nil if it is gone or another one has its name.
func (p *pods) readShadow(mapping *mapping, shadow *metav1.PartialObjectMetadata) (*vkv1alpha1.ShadowPod, error) {
	c, err := p.engine.remote.currentClient()
	if err != nil {
		return nil, err
	}
	full := &vkv1alpha1.ShadowPod{}
	if err := c.Get(mapping.ctx, client.ObjectKeyFromObject(shadow), full); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if full.UID != shadow.UID {
		return nil, nil
	}
	return full, nil
}

// markSent records that a ShadowPod is about to be written: from then on the local pod is kept until we know what became of that. It returns false if the
// pod is gone or being deleted.
func (p *pods) markSent(local *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, _ := p.local.Get(client.ObjectKeyFromObject(local)).(*corev1.Pod)
	if now == nil || now.UID != local.UID || now.DeletionTimestamp != nil {
		return false
	}
	p.memory(local).sent = true
	return true
}

// memory returns the memory of a pod. The caller holds the lock.
func (p *pods) memory(local *corev1.Pod) *memory {
	known := p.memories[local.UID]
	if known == nil {
		known = &memory{}
		// Only the deletion event of the pod frees its memory, so none is kept for a pod that is gone already.
		if now := p.local.Get(client.ObjectKeyFromObject(local)); now != nil && now.GetUID() == local.UID {
			p.memories[local.UID] = known
		}
	}
	return known
}

// shadowExists asks the peer's API server whether it has a ShadowPod of this pod.
func (p *pods) shadowExists(mapping *mapping, local *corev1.Pod) (bool, error) {
	c, err := p.engine.remote.currentClient()
	if err != nil {
		return false, err
	}
	shadow := &metav1.PartialObjectMetadata{}
	shadow.SetGroupVersionKind(shadowPod)
	err = c.Get(mapping.ctx, types.NamespacedName{Namespace: mapping.Remote, Name: local.Name}, shadow)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && shadow.Annotations[labels.Fence] == string(local.UID), err
}
