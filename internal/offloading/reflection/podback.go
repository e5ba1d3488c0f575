// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// Most pods are on their way to Ready for a second or two, and on that way each step would be a write. What is not urgent waits for
// patience, and then for longPatience until the next.
const (
	patience     = time.Second
	longPatience = 5 * time.Second
)

// tell writes how a pod stands over there into its status here.
func (p *pods) tell(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	local, _ := p.local.Get(key).(*corev1.Pod)
	if local == nil {
		return 0, nil
	}
	if wait := p.behind(local); wait > 0 {
		return wait, nil // unless an event comes before
	}
	pair, known := p.engine.pairs.local(key.Namespace)
	if pair == nil {
		return p.tellNotOffloaded(ctx, local, known)
	}
	there := types.NamespacedName{Namespace: pair.link.Remote, Name: key.Name}
	if !p.remote.Synced(there.Namespace) || !p.shadows.Synced(there.Namespace) {
		return 0, nil // opening looks at all of it
	}
	shadow, _ := p.shadows.Get(there).(*metav1.PartialObjectMetadata)
	remote, _ := p.remote.Get(there).(*corev1.Pod)
	if remote != nil && !p.belongs(pair, local, remote, shadow) {
		remote = nil
	}
	if shadow != nil && (!pair.link.Reflected(shadow) || shadow.Annotations[labels.Fence] != string(local.UID)) {
		shadow = nil
	}
	if local.DeletionTimestamp != nil && remote == nil && shadow == nil {
		return p.finish(ctx, pair, local)
	}
	if !p.engine.remote.answers() || !p.remote.Current(there.Namespace) {
		return 0, nil // what was known may not be so any more, and others decide here how to take the silence; being watched again wakes us
	}
	if remote == nil {
		remote = p.lastOf(local)
	}
	switch {
	case remote == nil && shadow == nil:
		return p.tellVanished(ctx, pair, local)
	case remote == nil:
		return p.tellMissed(ctx, pair, local, shadow)
	case finished(local) && shadow != nil && p.alive(pair, local, shadow):
		p.forth.add(key)
	}
	return p.tellStatus(ctx, pair, local, remote)
}

// belongs says whether a remote pod is the one of this very local pod: the name alone says nothing.
func (p *pods) belongs(pair *pair, local, remote *corev1.Pod, shadow *metav1.PartialObjectMetadata) bool {
	if remote.Labels[labels.Origin] != pair.link.LocalID {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(remote)
	if fence := remote.Annotations[labels.Fence]; fence != "" {
		return fence == string(local.UID) && owner != nil && owner.Kind == shadowPod.Kind
	}
	return shadow != nil && owner != nil && owner.UID == shadow.UID && shadow.Annotations[labels.Fence] == string(local.UID)
}

// concerns says whether an event in the peer is about what runs there for this pod.
func (p *pods) concerns(pair *pair, local *corev1.Pod, about project.Subject) bool {
	there := types.NamespacedName{Namespace: pair.link.Remote, Name: local.Name}
	if about.RemoteKind == shadowPod.Kind {
		shadow := p.shadows.Get(there)
		return shadow != nil && shadow.GetUID() == about.UID && shadow.GetAnnotations()[labels.Fence] == string(local.UID)
	}
	remote, _ := p.remote.Get(there).(*corev1.Pod)
	shadow, _ := p.shadows.Get(there).(*metav1.PartialObjectMetadata)
	if remote == nil { // its event may be faster than the pod itself
		return shadow != nil && shadow.Annotations[labels.Fence] == string(local.UID)
	}
	return remote.UID == about.UID && p.belongs(pair, local, remote, shadow)
}

func (p *pods) tellStatus(ctx context.Context, pair *pair, local, remote *corev1.Pod) (time.Duration, error) {
	if terminal(remote) && !ended(local, remote) {
		remote = remote.DeepCopy()
		remote.Status.Phase = corev1.PodRunning // the peer makes it again
	}
	p.mu.Lock()
	kept := p.memory(local)
	kept.restarts = kept.restarts.Observe(local, remote)
	restarts := kept.restarts
	p.mu.Unlock()
	var translator project.Translator
	if p.engine.options.ReflectIPs {
		translator = p.engine.options.Translator
	}
	status, err := project.PodStatus(pair.link, local, remote, restarts, translator, p.engine.options.HostIP)
	if err != nil {
		return 0, err
	}
	return p.write(ctx, local, &status)
}

// ended says whether a remote pod in a terminal phase has ended for good. Kubernetes gives such a phase also to a pod that is being deleted,
// and the peer makes that anew: to take it for the end would have it run twice.
func ended(local, remote *corev1.Pod) bool {
	switch {
	case local.DeletionTimestamp != nil, local.Spec.RestartPolicy == corev1.RestartPolicyNever,
		local.Spec.RestartPolicy == corev1.RestartPolicyOnFailure && remote.Status.Phase == corev1.PodSucceeded:
		return true
	case remote.DeletionTimestamp != nil:
		return false
	}
	for _, condition := range remote.Status.Conditions {
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue && condition.Reason != corev1.PodReasonTerminationByKubelet {
			return false
		}
	}
	return true
}

func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// finished pods never run again.
func finished(local *corev1.Pod) bool { return terminal(local) }

// keepEnd keeps a remote pod that has ended: it may be gone before that is told.
func (p *pods) keepEnd(there client.Object) {
	remote, _ := there.(*corev1.Pod)
	if remote == nil || !terminal(remote) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept := p.memories[types.UID(remote.Annotations[labels.Fence])]; kept != nil {
		kept.last = remote
	}
}

// lastOf is the remote pod as it was at its end, if it has ended for good.
func (p *pods) lastOf(local *corev1.Pod) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept := p.memories[local.UID]; kept != nil && kept.last != nil && ended(local, kept.last) {
		return kept.last
	}
	return nil
}

// tellMissed is for a pod that ran, and whose remote pod is gone: it may have ended while nobody looked, which its ShadowPod then says.
func (p *pods) tellMissed(ctx context.Context, pair *pair, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) (time.Duration, error) {
	if finished(local) || local.DeletionTimestamp != nil && len(local.Finalizers) == 0 {
		return 0, nil // known, or nobody waits to hear it
	}
	if age := time.Since(local.CreationTimestamp.Time); local.Status.StartTime == nil && age < soon {
		return soon - max(age, 0), nil // most likely it is being made, and never ran
	}
	full, err := p.full(pair, shadow)
	if err != nil || full == nil {
		return 0, err
	}
	phase := corev1.PodPhase(full.Status.Phase)
	if phase != corev1.PodSucceeded && phase != corev1.PodFailed {
		return 0, nil // it is made again
	}
	status := project.Gone(local, metav1.Now())
	status.Phase = phase
	return p.write(ctx, local, &status)
}

// tellVanished is for a pod of which the peer knows nothing any more. One that is to run until it is deleted is made again.
func (p *pods) tellVanished(ctx context.Context, pair *pair, local *corev1.Pod) (time.Duration, error) {
	if finished(local) || pair.leaving.Load() || !p.isOpen(pair) || !p.shadows.Current(pair.link.Remote) || !p.vanished(local) {
		return 0, nil
	}
	status := project.Vanished(local, metav1.Now())
	return p.write(ctx, local, &status)
}

// tellNotOffloaded is for a pod in a namespace without a twin.
func (p *pods) tellNotOffloaded(ctx context.Context, local *corev1.Pod, known mapping) (time.Duration, error) {
	idle := local.Status.Phase == "" || local.Status.Phase == corev1.PodPending
	switch {
	case known == unknown:
		return 0, nil // that means nothing
	case local.DeletionTimestamp != nil && (known == gone || idle && local.Status.Reason == project.OffloadingBackOff):
		return p.finish(ctx, nil, local)
	case known == gone || idle && local.Status.StartTime == nil:
		status := project.NotOffloaded(local, metav1.Now())
		return p.write(ctx, local, &status)
	}
	return 0, nil // its twin comes back
}

// finish removes a local pod that is being deleted, once nothing runs for it over there. Before that, who holds it learns how it ended.
func (p *pods) finish(ctx context.Context, pair *pair, local *corev1.Pod) (time.Duration, error) {
	if pair != nil {
		if !p.remote.Current(pair.link.Remote) || !p.shadows.Current(pair.link.Remote) {
			return 0, errNotSynced
		}
		p.mu.Lock()
		sent := p.memory(local).sent
		p.mu.Unlock()
		if sent { // by us, and never seen: what caches say may be too old
			switch there, err := p.found(pair, local); {
			case err != nil:
				return 0, err
			case there:
				return patience, nil
			}
		}
	}
	if len(local.Finalizers) > 0 {
		last := p.lastOf(local)
		if last != nil && !finished(local) {
			return p.tellStatus(ctx, pair, local, last)
		}
		status := project.Gone(local, metav1.Now())
		if _, err := p.write(ctx, local, &status); err != nil {
			return 0, err
		}
	}
	if local.DeletionGracePeriodSeconds != nil && *local.DeletionGracePeriodSeconds == 0 {
		return 0, nil // done; somebody else's finalizer holds it
	}
	gone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: local.Name}}
	err := p.engine.local.Delete(ctx, gone, client.GracePeriodSeconds(0), client.Preconditions{UID: &local.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("remove pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	return 0, nil
}

// behind says for how long to wait at most, as the cache has not heard of our last write: compared with that, news would be sent again. For
// ever it is not: the API server's store may have been replaced by an older one.
func (p *pods) behind(local *corev1.Pod) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.memories[local.UID]
	if kept == nil || kept.version == "" {
		return 0
	}
	if order, err := resourceversion.CompareResourceVersion(local.ResourceVersion, kept.version); err != nil || order >= 0 {
		return 0
	}
	return max(time.Until(kept.told.Add(soon)), 0)
}

// write sends what of the status differs, at once if that is urgent.
func (p *pods) write(ctx context.Context, local *corev1.Pod, status *corev1.PodStatus) (time.Duration, error) {
	patch, err := difference(local, status)
	if err != nil || patch == nil {
		return 0, err
	}
	if wait := p.wait(local, status); wait > 0 {
		return wait, nil
	}
	answer := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: local.Name}}
	if err := p.engine.local.Status().Patch(ctx, answer, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return 0, nil // it is gone, or another one has its name
		}
		return 0, fmt.Errorf("write status of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	p.engine.counts.count(local.Namespace, podKind, false)
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.local.Get(client.ObjectKeyFromObject(local)); now != nil && now.GetUID() == local.UID {
		kept := p.memory(local)
		kept.version, kept.told, kept.news = answer.ResourceVersion, time.Now(), time.Time{}
	}
	return 0, nil
}

// wait is how long the news may wait. Whether a pod is Ready, and that it has ended, is always urgent.
func (p *pods) wait(local *corev1.Pod, status *corev1.PodStatus) time.Duration {
	if terminalPhase(status.Phase) || ready(status) != ready(&local.Status) || status.Reason == project.OffloadingBackOff || local.DeletionTimestamp != nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.memory(local)
	if kept.news.IsZero() {
		kept.news = time.Now()
	}
	due := kept.news.Add(patience)
	if !ready(status) && !kept.told.IsZero() {
		due = kept.told.Add(longPatience)
	}
	return max(time.Until(due), 0)
}

func terminalPhase(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

func ready(status *corev1.PodStatus) bool {
	for i := range status.Conditions {
		if status.Conditions[i].Type == corev1.PodReady {
			return status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

// difference is the patch that makes the status, as kubelets send it; nil if nothing differs. The label that tells users where the pod runs
// goes along.
func difference(local *corev1.Pod, status *corev1.PodStatus) ([]byte, error) {
	mark := status.Reason != project.OffloadingBackOff && local.Labels[labels.ShadowPod] != "true"
	before := corev1.Pod{Status: local.Status}
	after := corev1.Pod{Status: *status}
	if mark {
		after.Labels = map[string]string{labels.ShadowPod: "true"}
	}
	old, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	wanted, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	if string(old) == string(wanted) {
		return nil, nil
	}
	after.UID = local.UID // another pod of that name is not to get it
	if wanted, err = json.Marshal(after); err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, wanted, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	return patch, nil
}
