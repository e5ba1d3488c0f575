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

// A starting pod changes its status several times within a second or two. To save writes, a change that is not urgent waits for statusDebounce, and while
// the pod is not Ready, for notReadyDebounce since the last write.
const (
	statusDebounce   = time.Second
	notReadyDebounce = 5 * time.Second
)

// syncInbound writes the status of the remote pod into that of the local pod.
func (p *pods) syncInbound(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	local, _ := p.local.Get(key).(*corev1.Pod)
	if local == nil {
		return 0, nil
	}
	if wait := p.cacheLag(local); wait > 0 {
		return wait, nil // an event may come earlier
	}
	mapping, known := p.engine.mappings.local(key.Namespace)
	if mapping == nil {
		return p.setNotOffloadedStatus(ctx, local, known)
	}
	if local.DeletionTimestamp == nil && p.engine.remote.unreachableFor(p.engine.options.UnreachableTimeout) {
		return p.setUnreachableStatus(ctx, local)
	}
	remoteKey := types.NamespacedName{Namespace: mapping.Remote, Name: key.Name}
	if !p.remote.Synced(remoteKey.Namespace) || !p.shadows.Synced(remoteKey.Namespace) {
		return 0, nil // compareAll enqueues all pods of the mapping
	}
	shadow, _ := p.shadows.Get(remoteKey).(*metav1.PartialObjectMetadata)
	remote, _ := p.remote.Get(remoteKey).(*corev1.Pod)
	if remote != nil && !p.belongs(mapping, local, remote, shadow) {
		remote = nil
	}
	if shadow != nil && (!mapping.Reflected(shadow) || shadow.Annotations[labels.Fence] != string(local.UID)) {
		shadow = nil
	}
	if local.DeletionTimestamp != nil && remote == nil && shadow == nil {
		return p.removeLocal(ctx, mapping, local)
	}
	if !p.engine.remote.reachable() || !p.remote.Current(remoteKey.Namespace) {
		return 0, nil // the cache may be outdated, and Kubernetes decides what becomes of the pod meanwhile; resumed watches requeue it
	}
	if remote == nil {
		remote = p.endedPod(local)
	}
	switch {
	case remote == nil && shadow == nil:
		return p.setVanishedStatus(ctx, mapping, local)
	case remote == nil:
		return p.setMissedEndStatus(ctx, mapping, local, shadow)
	case project.Finished(local.Status.Phase) && shadow != nil && p.runsRemotely(mapping, local, shadow):
		p.outbound.add(key)
	}
	return p.setStatus(ctx, mapping, local, remote)
}

// belongs reports whether a remote pod was created for this local pod. Equal names do not prove that.
func (p *pods) belongs(mapping *mapping, local, remote *corev1.Pod, shadow *metav1.PartialObjectMetadata) bool {
	if remote.Labels[labels.Origin] != mapping.LocalID {
		return false
	}
	owner := metav1.GetControllerOfNoCopy(remote)
	if fence := remote.Annotations[labels.Fence]; fence != "" {
		return fence == string(local.UID) && owner != nil && owner.Kind == shadowPod.Kind
	}
	return shadow != nil && owner != nil && owner.UID == shadow.UID && shadow.Annotations[labels.Fence] == string(local.UID)
}

// isAbout reports whether a remote event is about the ShadowPod or the remote pod of this local pod.
func (p *pods) isAbout(mapping *mapping, local *corev1.Pod, about project.Subject) bool {
	remoteKey := types.NamespacedName{Namespace: mapping.Remote, Name: local.Name}
	if about.RemoteKind == shadowPod.Kind {
		shadow := p.shadows.Get(remoteKey)
		return shadow != nil && shadow.GetUID() == about.UID && shadow.GetAnnotations()[labels.Fence] == string(local.UID)
	}
	remote, _ := p.remote.Get(remoteKey).(*corev1.Pod)
	shadow, _ := p.shadows.Get(remoteKey).(*metav1.PartialObjectMetadata)
	if remote == nil { // the event may arrive before the pod does
		return shadow != nil && shadow.Annotations[labels.Fence] == string(local.UID)
	}
	return remote.UID == about.UID && p.belongs(mapping, local, remote, shadow)
}

func (p *pods) setStatus(ctx context.Context, mapping *mapping, local, remote *corev1.Pod) (time.Duration, error) {
	if project.Finished(remote.Status.Phase) && !ended(local, remote) {
		remote = remote.DeepCopy()
		remote.Status.Phase = corev1.PodRunning // the peer creates it again
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
	status, err := project.PodStatus(mapping.NamespaceMapping, local, remote, restarts, translator, p.engine.options.HostIP)
	if err != nil {
		return 0, err
	}
	return p.writeReported(ctx, local, &status)
}

// writeReported is write for a status that the peer reports.
func (p *pods) writeReported(ctx context.Context, local *corev1.Pod, status *corev1.PodStatus) (time.Duration, error) {
	wait, err := p.write(ctx, local, status)
	if err == nil {
		p.countFailure(local, status)
	}
	return wait, err
}

// ended reports whether a remote pod in a terminal phase has ended for good. Kubernetes also sets such a phase on a pod that is being evicted or deleted.
// The peer creates that pod again, so reporting its end here would make the workload run twice.
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

// rememberEnd keeps a remote pod that is in a terminal phase: it may be deleted before a worker has reported that.
func (p *pods) rememberEnd(object client.Object) {
	remote, _ := object.(*corev1.Pod)
	if remote == nil || !project.Finished(remote.Status.Phase) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept := p.memories[types.UID(remote.Annotations[labels.Fence])]; kept != nil {
		kept.last = remote
	}
}

// endedPod returns the remembered remote pod if it has ended for good.
func (p *pods) endedPod(local *corev1.Pod) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept := p.memories[local.UID]; kept != nil && kept.last != nil && ended(local, kept.last) {
		return kept.last
	}
	return nil
}

// setMissedEndStatus is for a pod whose remote pod is gone while its ShadowPod exists. If the remote pod ended while no process observed it, the ShadowPod
// has recorded the phase.
func (p *pods) setMissedEndStatus(ctx context.Context, mapping *mapping, local *corev1.Pod, shadow *metav1.PartialObjectMetadata) (time.Duration, error) {
	if project.Finished(local.Status.Phase) || local.DeletionTimestamp != nil && len(local.Finalizers) == 0 {
		return 0, nil // the end is reported already, or no finalizer holder waits for it
	}
	if age := time.Since(local.CreationTimestamp.Time); local.Status.StartTime == nil && age < settleTimeout {
		return settleTimeout - max(age, 0), nil // most likely the peer has not created it yet
	}
	full, err := p.readShadow(mapping, shadow)
	if err != nil || full == nil {
		return 0, err
	}
	phase := corev1.PodPhase(full.Status.Phase)
	if !project.Finished(phase) {
		return 0, nil // the peer creates it again
	}
	status := project.Gone(local, metav1.Now())
	status.Phase = phase
	return p.writeReported(ctx, local, &status)
}

// setVanishedStatus is for a pod that the peer no longer has. A pod with restart policy Always is created again instead.
func (p *pods) setVanishedStatus(ctx context.Context, mapping *mapping, local *corev1.Pod) (time.Duration, error) {
	if project.Finished(local.Status.Phase) || mapping.terminating.Load() || !p.isCompared(mapping) || !p.shadows.Current(mapping.Remote) || !p.vanished(local) {
		return 0, nil
	}
	status := project.Vanished(local, metav1.Now())
	return p.write(ctx, local, &status)
}

// setUnreachableStatus is for a pod whose peer does not answer. Of a node that reports that it is not Ready, as ours does, Kubernetes does not do this itself.
func (p *pods) setUnreachableStatus(ctx context.Context, local *corev1.Pod) (time.Duration, error) {
	if !ready(&local.Status) {
		return 0, nil
	}
	status := project.Unreachable(local, metav1.Now())
	return p.write(ctx, local, &status)
}

// setNotOffloadedStatus is for a pod in a namespace without a remote namespace.
func (p *pods) setNotOffloadedStatus(ctx context.Context, local *corev1.Pod, known offloading) (time.Duration, error) {
	idle := local.Status.Phase == "" || local.Status.Phase == corev1.PodPending
	switch {
	case known == offloadingUnknown:
		return 0, nil
	case local.DeletionTimestamp != nil && (known == offloadingNone || idle && local.Status.Reason == project.OffloadingBackOff):
		return p.removeLocal(ctx, nil, local)
	case known == offloadingNone || idle && local.Status.StartTime == nil:
		status := project.NotOffloaded(local, metav1.Now())
		return p.write(ctx, local, &status)
	}
	return 0, nil // its remote namespace is created again
}

// removeLocal removes a local pod that is being deleted, once nothing runs for it in the peer. If finalizers hold the pod, their owners first get the final
// status.
func (p *pods) removeLocal(ctx context.Context, mapping *mapping, local *corev1.Pod) (time.Duration, error) {
	if mapping != nil {
		if !p.remote.Current(mapping.Remote) || !p.shadows.Current(mapping.Remote) {
			return 0, errNotSynced
		}
		p.mu.Lock()
		sent := p.memory(local).sent
		p.mu.Unlock()
		if sent { // the cache has never shown the ShadowPod that we wrote, so it may be too old: ask the API server
			switch exists, err := p.shadowExists(mapping, local); {
			case err != nil:
				return 0, err
			case exists:
				return statusDebounce, nil
			}
		}
	}
	if len(local.Finalizers) > 0 {
		last := p.endedPod(local)
		if last != nil && !project.Finished(local.Status.Phase) {
			return p.setStatus(ctx, mapping, local, last)
		}
		status := project.Gone(local, metav1.Now())
		if _, err := p.write(ctx, local, &status); err != nil {
			return 0, err
		}
	}
	if local.DeletionGracePeriodSeconds != nil && *local.DeletionGracePeriodSeconds == 0 {
		return 0, nil // only a finalizer holds it
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: local.Name}}
	err := p.engine.local.Delete(ctx, target, client.GracePeriodSeconds(0), client.Preconditions{UID: &local.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("remove pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	return 0, nil
}

// cacheLag returns how long to wait at most because the cache is older than our last write: comparing with the older copy would send the same patch again.
// The wait is bounded, because the API server may have been restored from an older backup.
func (p *pods) cacheLag(local *corev1.Pod) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.memories[local.UID]
	if kept == nil || kept.version == "" {
		return 0
	}
	if order, err := resourceversion.CompareResourceVersion(local.ResourceVersion, kept.version); err != nil || order >= 0 {
		return 0
	}
	return max(time.Until(kept.written.Add(settleTimeout)), 0)
}

// write patches the status if it differs: at once if the change is urgent, otherwise after a debounce, which it returns.
func (p *pods) write(ctx context.Context, local *corev1.Pod, status *corev1.PodStatus) (time.Duration, error) {
	patch, err := difference(local, status)
	if err != nil || patch == nil {
		return 0, err
	}
	if wait := p.debounce(local, status); wait > 0 {
		return wait, nil
	}
	answer := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: local.Name}}
	if err := p.engine.local.Status().Patch(ctx, answer, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return 0, nil // the pod is gone, or another one has its name
		}
		return 0, fmt.Errorf("write status of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.local.Get(client.ObjectKeyFromObject(local)); now != nil && now.GetUID() == local.UID {
		kept := p.memory(local)
		kept.version, kept.written, kept.pendingSince = answer.ResourceVersion, time.Now(), time.Time{}
	}
	return 0, nil
}

// debounce returns how long the change may still wait. A change of readiness and the end of a pod are always urgent.
func (p *pods) debounce(local *corev1.Pod, status *corev1.PodStatus) time.Duration {
	if project.Finished(status.Phase) || ready(status) != ready(&local.Status) || status.Reason == project.OffloadingBackOff || local.DeletionTimestamp != nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.memory(local)
	if kept.pendingSince.IsZero() {
		kept.pendingSince = time.Now()
	}
	due := kept.pendingSince.Add(statusDebounce)
	if !ready(status) && !kept.written.IsZero() {
		due = kept.written.Add(notReadyDebounce)
	}
	return max(time.Until(due), 0)
}

func ready(status *corev1.PodStatus) bool {
	for i := range status.Conditions {
		if status.Conditions[i].Type == corev1.PodReady {
			return status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

// difference returns the patch that sets the status, in the form that kubelets send; nil if nothing differs. The patch also sets the label that shows
// users where the pod runs.
func difference(local *corev1.Pod, status *corev1.PodStatus) ([]byte, error) {
	setLabel := status.Reason != project.OffloadingBackOff && local.Labels[labels.ShadowPod] != "true"
	before := corev1.Pod{Status: local.Status}
	after := corev1.Pod{Status: *status}
	if setLabel {
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
	after.UID = local.UID // a precondition: another pod of that name must not get the status
	if wanted, err = json.Marshal(after); err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, wanted, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("compare statuses of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	return patch, nil
}
