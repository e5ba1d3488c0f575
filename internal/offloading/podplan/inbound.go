// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// A starting pod changes its status several times within a second or two. To save writes, a change that is not urgent waits for statusDebounce, and while
// the pod is not Ready, for notReadyDebounce since the last write.
const (
	statusDebounce   = time.Second
	notReadyDebounce = 5 * time.Second
)

// A pod whose readiness changes without end would cost writes, and changes of Services, as fast as the peer likes. That it is not Ready is always written
// at once. That it is Ready again is, freeReturns times; each further time waits twice as long, from firstReturn up to lastReturn, until the pod was left
// alone for forgetReturns.
const (
	freeReturns             = 10
	firstReturn, lastReturn = time.Second, time.Minute
	forgetReturns           = 10 * time.Minute
)

// Report is which status to write into the local pod.
type Report int

const (
	// ReportNothing leaves the status as it is.
	ReportNothing Report = iota
	// ReportRemote reports Inbound.Remote.
	ReportRemote
	// ReportGone reports that the pod has ended: with Inbound.Phase, or, if that is empty, with the phase that follows from its containers.
	ReportGone
	// ReportVanished reports that the peer has lost a pod that must not run twice.
	ReportVanished
	// ReportUnreachable reports that the peer does not answer.
	ReportUnreachable
	// ReportMissing reports that the peer has no pod for it at the moment.
	ReportMissing
	// ReportUnmet reports that the pod asks for what it would not have in the peer, so that it is not run there.
	ReportUnmet
	// ReportWaiting reports that the pod waits for its predecessor, ReportWaited that it does not any more.
	ReportWaiting
	ReportWaited
	// ReportNotOffloaded reports that the namespace is not offloaded.
	ReportNotOffloaded
)

// Inbound is what to do here, in the order of the fields.
type Inbound struct {
	// Retry: a cache that decides is not current. Try again after a backoff.
	Retry bool
	// NeedsLive: read the ShadowPod from the peer's API server, and call Plan again with the same facts and Live.
	NeedsLive bool
	// Report is which status to write, if that of the local pod differs.
	Report Report
	// Remote is the pod for ReportRemote. Restarts: the peer creates it again, so it is reported as Running.
	Remote   *corev1.Pod
	Restarts bool
	// NetworkDown: the remote pod, if it is Ready, is reported as not Ready.
	NetworkDown bool
	// Phase is for ReportGone.
	Phase corev1.PodPhase
	// Replace: delete the local pod, after the status was written, so that its controller makes another one.
	Replace bool
	// Remove the local pod, after the status was written.
	Remove bool
	// RequeueAfter is when to decide again at the latest; zero if an event will come.
	RequeueAfter time.Duration
}

func planInbound(f *Facts) Inbound {
	if f.Local == nil {
		return Inbound{}
	}
	if wait := f.lag(); wait > 0 {
		return Inbound{RequeueAfter: wait}
	}
	switch {
	case f.Offloading != Mapped:
		return planNotOffloaded(f)
	case f.Local.DeletionTimestamp == nil && f.Unreachable:
		// Of a node that reports that it is not Ready, as ours does, Kubernetes does not do this itself.
		// A pod that was reported as running behind a network that is down may not run any more.
		if Ready(&f.Local.Status) || readiness(&f.Local.Status).Reason == podstatus.NetworkUnreachable {
			return Inbound{Report: ReportUnreachable}
		}
		return Inbound{}
	case !f.Shadows.Synced || !f.Remotes.Synced:
		return Inbound{} // the comparison of the mapping enqueues all its pods
	}
	shadow, remote := f.shadow(), f.remote()
	if f.Local.DeletionTimestamp != nil && shadow == nil && remote == nil {
		return planRemoval(f)
	}
	if !f.Reachable || !f.Remotes.Current || f.Network == NetworkUnknown {
		return Inbound{} // the cache may be outdated, and Kubernetes decides what becomes of the pod meanwhile; resumed watches enqueue it, as does the network
	}
	if remote == nil {
		remote = f.end()
	}
	switch {
	case remote == nil && shadow == nil && f.waits():
		return Inbound{Report: ReportWaiting}
	case remote == nil && f.waited():
		return Inbound{Report: ReportWaited} // the event of that write continues
	case remote == nil && shadow == nil:
		return planVanished(f)
	case remote == nil:
		return planMissedEnd(f)
	}
	step := Inbound{
		Report: ReportRemote, Remote: remote, Restarts: podphase.Final(remote.Status.Phase) && !f.ended(remote), NetworkDown: f.Network == NetworkDown,
	}
	if wait, ok := f.stuck(remote); ok {
		step.Replace, step.RequeueAfter = wait == 0, wait
	}
	return step
}

// planMissedEnd is for a pod whose remote pod is gone while its ShadowPod exists. If the remote pod ended while no process observed it, the ShadowPod has
// recorded the phase. The cache does not keep that.
func planMissedEnd(f *Facts) Inbound {
	if f.showsEnd() || f.Local.DeletionTimestamp != nil && len(f.Local.Finalizers) == 0 {
		return Inbound{} // the end is reported already, or no finalizer holder waits for it
	}
	if age := f.Now.Sub(f.Local.CreationTimestamp.Time); f.Local.Status.StartTime == nil && age < SettleTimeout {
		return Inbound{RequeueAfter: SettleTimeout - max(age, 0)} // most likely the peer has not created it yet
	}
	if f.Live == nil {
		return Inbound{NeedsLive: true}
	}
	if f.Live.Shadow == nil || f.Live.Shadow.UID != f.Shadow.UID || !podphase.Final(corev1.PodPhase(f.Live.Shadow.Status.Phase)) {
		return f.missing() // the peer creates it again, or its deletion is an event
	}
	return Inbound{Report: ReportGone, Phase: corev1.PodPhase(f.Live.Shadow.Status.Phase)}
}

// planVanished is for a pod that the peer no longer has. A pod with restart policy Always is created again instead. If we reported its end, and the
// local pod does not show it, the API server was restored from a backup before that.
func planVanished(f *Facts) Inbound {
	switch {
	case f.showsEnd():
		return Inbound{}
	case f.Terminating || !f.Compared || !f.Shadows.Current:
		return f.missing()
	case f.Memory.Finished != "":
		return Inbound{Report: ReportGone, Phase: f.Memory.Finished}
	case f.vanished():
		return Inbound{Report: ReportVanished}
	case f.idle() && f.unmet():
		return Inbound{Report: ReportUnmet}
	}
	return f.missing()
}

// missing takes the readiness of a pod that does not run in the peer, whatever becomes of it: Services would send requests to an address without a pod.
func (f *Facts) missing() Inbound {
	if !Ready(&f.Local.Status) {
		return Inbound{}
	}
	return Inbound{Report: ReportMissing}
}

// planNotOffloaded is for a pod in a namespace without a remote namespace.
func planNotOffloaded(f *Facts) Inbound {
	pending := f.Local.Status.Phase == "" || f.Local.Status.Phase == corev1.PodPending
	switch {
	case f.Offloading == Unknown:
		return Inbound{}
	case f.Local.DeletionTimestamp != nil && (f.Offloading == None || pending && f.Local.Status.Reason == podstatus.OffloadingBackOff):
		return f.removal()
	case f.Offloading == None || f.idle():
		return Inbound{Report: ReportNotOffloaded}
	case f.Offloading == Refused:
		return f.missing()
	}
	return Inbound{} // its remote namespace is created again
}

// idle reports whether the pod has not started.
func (f *Facts) idle() bool {
	status := &f.Local.Status
	return (status.Phase == "" || status.Phase == corev1.PodPending) && status.StartTime == nil
}

// planRemoval is for a local pod that is being deleted and of which the caches show nothing in the peer.
func planRemoval(f *Facts) Inbound {
	switch {
	case !f.Shadows.Current || !f.Remotes.Current:
		return Inbound{Retry: true}
	case f.Memory.Sending:
		return Inbound{RequeueAfter: statusDebounce} // whether the ShadowPod is there is known once that write is answered
	case f.Memory.Sent && f.Live == nil:
		return Inbound{NeedsLive: true} // the cache has never shown the ShadowPod that we wrote, so it may be too old
	case f.Memory.Sent && f.Live.Shadow != nil && f.Live.Shadow.Annotations[labels.Fence] == string(f.Local.UID):
		return Inbound{RequeueAfter: statusDebounce}
	}
	return f.removal()
}

// removal removes the local pod. If finalizers hold it, their owners first get the final status.
func (f *Facts) removal() Inbound {
	only := f.Local.DeletionGracePeriodSeconds != nil && *f.Local.DeletionGracePeriodSeconds == 0 // only a finalizer holds it
	switch last := f.end(); {
	case len(f.Local.Finalizers) == 0:
		return Inbound{Remove: !only}
	case last != nil && !f.finished():
		return Inbound{Report: ReportRemote, Remote: last} // the event of that write continues
	}
	return Inbound{Report: ReportGone, Remove: !only}
}

// lag returns how long to wait at most because the cache is older than our last write: comparing with the older copy would send the same patch again. The
// wait is bounded, because the API server may have been restored from an older backup. An event may come earlier.
func (f *Facts) lag() time.Duration {
	if f.Memory.Version == "" {
		return 0
	}
	if order, err := resourceversion.CompareResourceVersion(f.Local.ResourceVersion, f.Memory.Version); err != nil || order >= 0 {
		return 0
	}
	return max(f.Memory.Written.Add(SettleTimeout).Sub(f.Now), 0)
}

// Urgent reports whether a status shows the end of a pod, or another readiness. Others may wait.
func Urgent(local *corev1.Pod, status *corev1.PodStatus) bool {
	return podphase.Final(status.Phase) || Ready(status) != Ready(&local.Status)
}

// Debounce returns how long a status that differs from that of the local pod may still wait, and since when it waits. A change of readiness and the end of a
// pod are urgent, unless the pod has become Ready too often.
func Debounce(local *corev1.Pod, status *corev1.PodStatus, m Memory, now time.Time) (wait time.Duration, since time.Time) {
	since = m.PendingSince
	switch {
	case podphase.Final(status.Phase) || status.Reason == podstatus.OffloadingBackOff: // a reason of ours, which no peer can report
		return 0, since
	case Ready(status) && !Ready(&local.Status):
		if m.Returns < freeReturns || now.Sub(m.ReadyAt) > forgetReturns {
			return 0, since
		}
		pause := min(firstReturn<<min(m.Returns-freeReturns, 10), lastReturn)
		return max(m.ReadyAt.Add(pause).Sub(now), 0), since
	case Ready(status) != Ready(&local.Status):
		return 0, since
	}
	if since.IsZero() {
		since = now
	}
	due := since.Add(statusDebounce)
	if !Ready(status) && !m.Written.IsZero() {
		due = m.Written.Add(notReadyDebounce)
	}
	return max(due.Sub(now), 0), since
}

// Wrote returns the memory after a status was written.
func (m Memory) Wrote(local *corev1.Pod, status *corev1.PodStatus, version string, now time.Time) Memory {
	m.Version, m.Written, m.PendingSince = version, now, time.Time{}
	m.Started = m.Started || status.StartTime != nil
	if podphase.Final(status.Phase) {
		m.Finished = status.Phase
	}
	if Ready(status) && !Ready(&local.Status) {
		if now.Sub(m.ReadyAt) > forgetReturns {
			m.Returns = 0
		}
		m.Returns, m.ReadyAt = m.Returns+1, now
	}
	return m
}
