// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/podplan"
	"liqo.io/liqo/internal/offloading/reflection/engine"
	"liqo.io/liqo/internal/offloading/reflection/events"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// syncInbound executes the inbound step of a pod.
func (p *Pods) syncInbound(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	mapping, facts := p.observe(key)
	facts.StuckSince, facts.StuckTimeout = p.stuckSince(&facts), p.options.StuckTimeout
	step := podplan.Plan(&facts).Inbound
	if step.NeedsLive {
		var err error
		if facts.Live, err = p.liveShadow(mapping, key.Name); err != nil {
			return 0, err
		}
		step = podplan.Plan(&facts).Inbound
	}
	if step.Retry {
		return 0, engine.ErrNotSynced
	}
	if step.Report != podplan.ReportNothing {
		if wait, err := p.report(ctx, &facts, step); err != nil || wait > 0 {
			return wait, err
		}
	}
	if step.Replace {
		return 0, p.replace(ctx, &facts)
	}
	if step.Remove {
		return 0, p.removeLocal(ctx, facts.Local)
	}
	return step.RequeueAfter, nil
}

// liveShadow asks the peer's API server for the ShadowPod of a pod.
func (p *Pods) liveShadow(mapping *engine.Mapping, name string) (*podplan.Live, error) {
	c, err := p.engine.Remote.Client()
	if err != nil {
		return nil, err
	}
	full := &vkv1alpha1.ShadowPod{}
	if err := c.Get(mapping.Context, types.NamespacedName{Namespace: mapping.Remote, Name: name}, full); err != nil {
		if apierrors.IsNotFound(err) {
			return &podplan.Live{}, nil
		}
		return nil, err
	}
	return &podplan.Live{Shadow: full}, nil
}

// About returns the local pod that a remote event is about; nil if there is none.
func (p *Pods) About(mapping project.NamespaceMapping, subject events.Subject) client.Object {
	local, _ := p.Local.Get(types.NamespacedName{Namespace: mapping.Local, Name: subject.Name}).(*corev1.Pod)
	if local == nil || !p.isAbout(mapping, local, subject) {
		return nil
	}
	return local
}

// isAbout reports whether a remote event is about the ShadowPod or the remote pod of this local pod.
func (p *Pods) isAbout(mapping project.NamespaceMapping, local *corev1.Pod, about events.Subject) bool {
	remoteKey := types.NamespacedName{Namespace: mapping.Remote, Name: local.Name}
	if about.RemoteKind == shadowPod.Kind {
		shadow := p.Shadows.Get(remoteKey)
		return shadow != nil && shadow.GetUID() == about.UID && shadow.GetAnnotations()[labels.Fence] == string(local.UID)
	}
	remote, _ := p.Remote.Get(remoteKey).(*corev1.Pod)
	shadow, _ := p.Shadows.Get(remoteKey).(*metav1.PartialObjectMetadata)
	if remote == nil { // the event may arrive before the pod does
		return shadow != nil && shadow.Annotations[labels.Fence] == string(local.UID)
	}
	return remote.UID == about.UID && podplan.Belongs(mapping, local, remote, shadow)
}

// report writes the status of a step. It returns how long the write may wait.
func (p *Pods) report(ctx context.Context, facts *podplan.Facts, step podplan.Inbound) (time.Duration, error) {
	local, now, status := facts.Local, metav1.NewTime(facts.Now), corev1.PodStatus{}
	switch step.Report {
	case podplan.ReportRemote:
		var err error
		if status, err = p.remoteStatus(facts, step); err != nil {
			return 0, err
		}
	case podplan.ReportGone:
		if status = podstatus.Gone(local, now); step.Phase != "" {
			status.Phase = step.Phase
		}
	case podplan.ReportVanished:
		status = podstatus.Vanished(local, now)
	case podplan.ReportUnreachable:
		status = podstatus.Unreachable(local, now)
	case podplan.ReportMissing:
		status = podstatus.Missing(local, now)
	case podplan.ReportUnmet:
		status = podstatus.NotMet(local, podspec.Unsent(local, facts.RunWithout))
	case podplan.ReportWaiting:
		status = podstatus.Waiting(local, facts.Remote, now)
		p.engine.Recorder.Failed(local, Kind, events.ReasonWaiting, errors.New(status.Message))
	case podplan.ReportWaited:
		status = podstatus.Waited(local)
	case podplan.ReportNotOffloaded:
		status = podstatus.NotOffloaded(local, now)
	default:
		return 0, nil
	}
	wait, err := p.write(ctx, local, &status)
	if err == nil && (step.Report == podplan.ReportRemote || step.Phase != "") { // what the peer reports
		p.countFailure(local, &status)
	}
	return wait, err
}

// remoteStatus projects the status of the remote pod.
func (p *Pods) remoteStatus(facts *podplan.Facts, step podplan.Inbound) (corev1.PodStatus, error) {
	remote := step.Remote
	if step.Restarts {
		remote = remote.DeepCopy()
		remote.Status.Phase = corev1.PodRunning
	}
	p.mu.Lock()
	known := p.memory(facts.Local)
	known.restarts = known.restarts.Observe(facts.Local, remote)
	restarts, applied := known.restarts, known.applied
	p.mu.Unlock()
	if applied.is > 1 && applied.has != applied.is && podstatus.HasGeneration(remote) == applied.has {
		remote = podstatus.WithGeneration(remote, applied.is)
	}
	status, err := podstatus.Of(podstatus.Facts{
		Mapping: facts.Mapping, Local: facts.Local, Remote: remote, Restarts: restarts, Translator: p.options.Translator,
		HostIP: podstatus.HostIP(facts.Local, p.options.HostIP),
	})
	if err == nil && step.NetworkDown {
		podstatus.NetworkDown(&status, facts.Local, metav1.NewTime(facts.Now))
	}
	return status, err
}

// rememberEnd keeps a remote pod that is in a terminal phase: it may be deleted before a worker has reported that. A successor replaces it.
func (p *Pods) rememberEnd(object client.Object) {
	remote, _ := object.(*corev1.Pod)
	if remote == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.memories[types.UID(remote.Annotations[labels.Fence])]
	switch {
	case kept == nil:
	case podphase.Final(remote.Status.Phase):
		kept.Last = remote
	case kept.Last != nil && kept.Last.UID != remote.UID:
		kept.Last = nil
	}
}

// removeLocal removes a local pod that is being deleted.
func (p *Pods) removeLocal(ctx context.Context, local *corev1.Pod) error {
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: local.Name}}
	err := p.engine.Local.Delete(ctx, target, client.GracePeriodSeconds(0), client.Preconditions{UID: &local.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	return nil
}

// write patches the status if it differs: at once if the change is urgent, otherwise after a debounce, which it returns.
func (p *Pods) write(ctx context.Context, local *corev1.Pod, status *corev1.PodStatus) (time.Duration, error) {
	patch, err := podstatus.Patch(local, status)
	if err == nil && patch != nil && p.noGenerations.Load() {
		var rest []byte
		if rest, err = podstatus.Patch(local, podstatus.WithGenerationsOf(local, status)); rest == nil {
			patch = nil
		}
	}
	if err != nil || patch == nil {
		return 0, err
	}
	if wait := p.debounce(local, status); wait > 0 {
		return wait, nil
	}
	if !podplan.Urgent(local, status) {
		stored, err := json.Marshal(status)
		if err != nil {
			return 0, fmt.Errorf("measure the status of pod %s/%s: %w", local.Namespace, local.Name, err)
		}
		if wait := p.engine.SpendStatus(len(stored), time.Now()); wait > 0 {
			return wait, nil
		}
	}
	answer := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: local.Namespace, Name: local.Name}}
	if err := p.engine.Local.Status().Patch(ctx, answer, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return 0, nil // the pod is gone, or another one has its name
		}
		return 0, fmt.Errorf("write status of pod %s/%s: %w", local.Namespace, local.Name, err)
	}
	if status.ObservedGeneration > 0 {
		p.noGenerations.Store(answer.Status.ObservedGeneration == 0)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.Local.Get(client.ObjectKeyFromObject(local)); now != nil && now.GetUID() == local.UID {
		kept := p.memory(local)
		kept.Memory = kept.Wrote(local, status, answer.ResourceVersion, time.Now())
	}
	return 0, nil
}

// debounce returns how long the change may still wait.
func (p *Pods) debounce(local *corev1.Pod, status *corev1.PodStatus) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.memory(local)
	wait, known.PendingSince = podplan.Debounce(local, status, known.Memory, time.Now())
	return wait
}
