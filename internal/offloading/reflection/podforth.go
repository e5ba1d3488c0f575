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
)

// soon is how long it may take until the clusters have agreed on their addresses, before that is told.
const soon = 10 * time.Second

// send brings a pod to the peer, or takes it away there.
func (p *pods) send(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	pair, _ := p.engine.pairs.local(key.Namespace)
	if pair == nil || !p.isOpen(pair) {
		return 0, nil // opening looks at all of it
	}
	if !p.local.Current(fanin.Every) {
		return 0, errNotSynced
	}
	there := types.NamespacedName{Namespace: pair.link.Remote, Name: key.Name}
	local, _ := p.local.Get(key).(*corev1.Pod)
	shadow, _ := p.shadows.Get(there).(*metav1.PartialObjectMetadata)
	ours := shadow != nil && pair.link.Reflected(shadow)
	switch {
	case ours && shadow.DeletionTimestamp != nil:
		return 0, nil // its end wakes us
	case ours && (local == nil || local.DeletionTimestamp != nil || shadow.Annotations[labels.Fence] != string(local.UID)):
		// In the foreground: as long as the pod is there, the wish for it is, too, and no other pod gets its name.
		if err := p.engine.remote.remove(pair.ctx, shadow, metav1.DeletePropagationForeground); err != nil {
			if local != nil && visible(err) { // it stays Terminating, or its successor Pending
				p.engine.said.failed(local, podKind, reasonNotDeleted, err)
			}
			return 0, err
		}
		pair.appliers[podKind].Forget(there)
		return 0, nil
	case ours && finished(local) && p.alive(pair, local, shadow):
		// It was given up here, and something runs there that nobody waits for: another one may have taken its place by now.
		return 0, p.engine.remote.remove(pair.ctx, shadow, metav1.DeletePropagationForeground)
	case local == nil || local.DeletionTimestamp != nil || pair.leaving.Load() || finished(local):
		return 0, nil
	case shadow != nil && !ours:
		p.engine.said.failed(local, podKind, reasonFailed, errStranger)
		p.engine.counts.count(key.Namespace, podKind, true)
		return 0, nil // until it is gone
	case shadow == nil && !p.shadows.Current(there.Namespace):
		return 0, errNotSynced
	case shadow == nil && p.predecessor(pair, there):
		return 0, nil // its end wakes us
	case shadow == nil && (p.lastOf(local) != nil || p.vanished(local)):
		p.back.add(key)
		return 0, nil // it must not run again
	}
	return p.apply(ctx, pair, local, shadow)
}

func (p *pods) isOpen(pair *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened[pair]
}

// predecessor says whether a pod of ours of that name still runs: another one, or this one made before its wish was lost.
func (p *pods) predecessor(pair *pair, there types.NamespacedName) bool {
	remote, _ := p.remote.Get(there).(*corev1.Pod)
	return remote != nil && remote.Labels[labels.Origin] == pair.link.LocalID && remote.Annotations[labels.Fence] != ""
}

// alive says whether something runs over there for a pod.
func (p *pods) alive(pair *pair, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) bool {
	remote, _ := p.remote.Get(types.NamespacedName{Namespace: pair.link.Remote, Name: local.Name}).(*corev1.Pod)
	return remote != nil && p.remote.Current(pair.link.Remote) && p.belongs(pair, local, remote, shadow) && !terminal(remote) && remote.DeletionTimestamp == nil
}

// vanished says whether a pod that ran, and must not run again once it has finished, is gone from the peer with its ShadowPod while nobody
// looked: it may have finished. What is seen to go without having finished leaves how it ended.
func (p *pods) vanished(local *corev1.Pod) bool {
	if local.Spec.RestartPolicy == corev1.RestartPolicyAlways || local.Spec.RestartPolicy == "" || local.Status.StartTime == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.memories[local.UID]
	return kept == nil || kept.last == nil
}

// wish is the ShadowPod of a pod, if it is made now; tokens says whether it is one that has tokens.
func (p *pods) wish(pair *pair, local *corev1.Pod) (wish *vkapply.ShadowPodApplyConfiguration, tokens bool, err error) {
	server, err := p.engine.apiServer(pair)
	if err != nil {
		return nil, false, err
	}
	wish, err = wishWith(pair, local, server)
	return wish, server.Enabled, err
}

// otherwise is the wish as it was if the pod was made while the namespace had the other policy on tokens. Nil: it cannot have been.
func (p *pods) otherwise(pair *pair, local *corev1.Pod, tokens bool) *vkapply.ShadowPodApplyConfiguration {
	var server project.APIServer
	var err error
	if p.engine.tokens == nil {
		return nil
	}
	if !tokens {
		server, err = p.engine.options.APIServer()
	}
	if err != nil {
		return nil // all of the ShadowPod will show what it was made with
	}
	wish, err := wishWith(pair, local, server)
	if err != nil {
		return nil
	}
	return wish
}

// wishWith is a ShadowPod with its fence where metadata shows it.
func wishWith(pair *pair, local *corev1.Pod, server project.APIServer) (*vkapply.ShadowPodApplyConfiguration, error) {
	wish, err := project.ShadowPod(pair.link, local, project.PodOptions{APIServer: server})
	if err != nil {
		return nil, err
	}
	return wish.WithAnnotations(map[string]string{labels.Fence: string(local.UID)}), nil
}

func (p *pods) apply(ctx context.Context, pair *pair, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) (time.Duration, error) {
	wish, tokens, err := p.wish(pair, local)
	switch {
	case errors.Is(err, project.ErrRefused):
		p.engine.said.failed(local, podKind, reasonFailed, err)
		p.engine.counts.count(local.Namespace, podKind, true)
		return 0, nil // until the pod is changed
	case err != nil:
		if time.Since(local.CreationTimestamp.Time) > soon {
			p.engine.said.failed(local, podKind, reasonFailed, err)
		}
		return 0, err
	}
	held, other, err := p.held(pair, local, shadow, wish, tokens)
	switch {
	case err != nil:
		return 0, err
	case other && shadow == nil:
		return soon, nil // its event will come
	case other:
		return 0, nil // as it was made, it stays
	}
	if tokens {
		if err := p.engine.tokens.ensure(ctx, pair, local, shadow); err != nil {
			return 0, err // it has told
		}
	}
	var live client.Object
	switch {
	case held && shadow == nil:
		return soon, nil // its event will come
	case held:
		return 0, nil
	case shadow == nil && !p.sending(local):
		return 0, nil
	case shadow != nil:
		full, err := p.full(pair, shadow)
		if err != nil || full == nil {
			return 0, err
		}
		wish, live = amended(wish, full), full
	}
	switch err := pair.appliers[podKind].ApplyTo(pair.ctx, wish, live); {
	case err == nil:
		p.engine.said.settled(local)
		p.engine.counts.count(local.Namespace, podKind, false)
		if lost := project.Lost(local); shadow == nil && len(lost) > 0 {
			p.engine.said.failed(local, podKind, reasonLost, fmt.Errorf("in the remote cluster the pod has no %s; if it needs that, keep it off virtual nodes: node affinity liqo.io/type NotIn virtual-node", strings.Join(lost, ", ")))
		}
		return 0, nil
	case refused(err):
		p.engine.said.failed(local, podKind, reasonFailed, err)
		p.engine.counts.count(local.Namespace, podKind, true)
		return refusedAgain, nil
	default:
		if visible(err) {
			p.engine.said.failed(local, podKind, reasonFailed, err)
		}
		return 0, err
	}
}

// held says whether the peer has the wish already, as far as metadata shows it, or has it, other, as it was with the other policy on tokens. If
// the ShadowPod has not been seen, it counts that it was just written.
func (p *pods) held(pair *pair, local *corev1.Pod, shadow *metav1.PartialObjectMetadata, wish *vkapply.ShadowPodApplyConfiguration, tokens bool) (held, other bool, err error) {
	applier := pair.appliers[podKind]
	if !applier.Remembers(shadowPod, types.NamespacedName{Namespace: pair.link.Remote, Name: local.Name}) {
		return false, false, nil
	}
	has := func(one *vkapply.ShadowPodApplyConfiguration) (bool, error) {
		if shadow == nil {
			return applier.JustWritten(one), nil
		}
		return applier.Recall(one, shadow)
	}
	if held, err = has(wish); held || err != nil {
		return held, false, err
	}
	before := p.otherwise(pair, local, tokens)
	if before == nil {
		return false, false, nil
	}
	other, err = has(before)
	return false, other, err
}

// amended is the wish for a pod that is there already: what it was made with stays.
func amended(wish *vkapply.ShadowPodApplyConfiguration, full *vkv1alpha1.ShadowPod) *vkapply.ShadowPodApplyConfiguration {
	again := *wish
	again.Spec = vkapply.ShadowPodSpec().WithFence(*wish.Spec.Fence).WithPod(*project.Amended(&full.Spec.Pod, wish.Spec.Pod))
	// Of this very object: a change must not make one anew that has just been deleted, which may be that of a pod that has ended.
	return again.WithUID(full.UID)
}

// full is the whole ShadowPod, asked now; nil if it is not there any more.
func (p *pods) full(pair *pair, shadow *metav1.PartialObjectMetadata) (*vkv1alpha1.ShadowPod, error) {
	c, err := p.engine.remote.now()
	if err != nil {
		return nil, err
	}
	full := &vkv1alpha1.ShadowPod{}
	if err := c.Get(pair.ctx, client.ObjectKeyFromObject(shadow), full); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if full.UID != shadow.UID {
		return nil, nil
	}
	return full, nil
}

// sending notes that a ShadowPod is about to be written, unless the pod is being deleted by now: from here on the pod is
// kept until it is known what became of that.
func (p *pods) sending(local *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, _ := p.local.Get(client.ObjectKeyFromObject(local)).(*corev1.Pod)
	if now == nil || now.UID != local.UID || now.DeletionTimestamp != nil {
		return false
	}
	p.memory(local).sent = true
	return true
}

// memory of a pod; the caller holds the lock.
func (p *pods) memory(local *corev1.Pod) *memory {
	known := p.memories[local.UID]
	if known == nil {
		known = &memory{}
		// Nobody would drop that of a pod which is gone already.
		if now := p.local.Get(client.ObjectKeyFromObject(local)); now != nil && now.GetUID() == local.UID {
			p.memories[local.UID] = known
		}
	}
	return known
}

// found says whether the peer has a ShadowPod of this pod, asked now.
func (p *pods) found(pair *pair, local *corev1.Pod) (bool, error) {
	c, err := p.engine.remote.now()
	if err != nil {
		return false, err
	}
	shadow := &metav1.PartialObjectMetadata{}
	shadow.SetGroupVersionKind(shadowPod)
	err = c.Get(pair.ctx, types.NamespacedName{Namespace: pair.link.Remote, Name: local.Name}, shadow)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && shadow.Annotations[labels.Fence] == string(local.UID), err
}
