// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/lifecycle"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

var start = time.Unix(1_700_000_000, 0)

// running are the facts about a pod that runs in the peer.
func running() Facts {
	current := Cache{Synced: true, Current: true}
	local := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "local", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(start)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: start}},
	}
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "web", UID: "shadow", Labels: map[string]string{labels.Origin: "rome", labels.Destination: "milan"},
		Annotations: map[string]string{labels.Fence: "local"},
	}}
	remote := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", UID: "remote", Labels: map[string]string{labels.Origin: "rome"}, Annotations: map[string]string{labels.Fence: "local"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ShadowPod", Name: "web", UID: "shadow", Controller: new(true)}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	return Facts{
		Offloading: Mapped, Mapping: between, Compared: true, LocalCurrent: true, Shadows: current, Remotes: current, Reachable: true,
		Local: local, Shadow: metadata, Remote: remote, Now: start.Add(time.Minute),
	}
}

// TestPlan: single steps, by name. Each begins with a pod that runs in the peer.
func TestPlan(t *testing.T) {
	moment := metav1.NewTime(start)
	deleting := func(f *Facts) {
		f.Local.DeletionTimestamp, f.Local.DeletionGracePeriodSeconds = &moment, new(int64(30))
	}
	deletingIn := func(seconds int64) func(*Facts) {
		return func(f *Facts) { f.Local.DeletionTimestamp, f.Local.DeletionGracePeriodSeconds = &moment, &seconds }
	}
	manifest := func(seconds int64) func(*Facts) {
		return func(f *Facts) { f.Local.Spec.TerminationGracePeriodSeconds = &seconds }
	}
	announced := func(seconds string) func(*Facts) {
		return func(f *Facts) { f.Shadow.Annotations[labels.DeletionPeriod] = seconds }
	}
	forced := func(f *Facts) { f.Local, f.Forced = nil, true }
	forcedBefore := func(f *Facts) { f.Shadow.Annotations[labels.Fence], f.Forced = "earlier", true }
	waited := func(f *Facts) {
		f.Local.Status = corev1.PodStatus{Phase: corev1.PodPending, Reason: podstatus.PredecessorEnding}
	}
	held := func(f *Facts) { f.Local.Finalizers = []string{"job"} }
	once := func(f *Facts) { f.Local.Spec.RestartPolicy = corev1.RestartPolicyNever }
	unstarted := func(f *Facts) { f.Local.Status = corev1.PodStatus{} }
	gone := func(f *Facts) { f.Shadow, f.Remote = nil, nil }
	remoteGone := func(f *Facts) { f.Remote = nil }
	shadowDeleting := func(f *Facts) { f.Shadow.DeletionTimestamp = &moment }
	finished := func(f *Facts) { f.Local.Status.Phase = corev1.PodFailed }
	succeeded := func(f *Facts) { f.Remote.Status.Phase = corev1.PodSucceeded }
	failed := func(f *Facts) { f.Remote.Status.Phase = corev1.PodFailed }
	drained := func(f *Facts) { f.Remote.DeletionTimestamp = &moment }
	remembered := func(f *Facts) {
		last := f.Remote.DeepCopy()
		last.Status.Phase = corev1.PodSucceeded
		f.Memory.Last = last
	}
	live := func(phase vkv1alpha1.ShadowPodPhase) func(*Facts) {
		return func(f *Facts) {
			f.Live = &Live{Shadow: &vkv1alpha1.ShadowPod{ObjectMeta: *f.Shadow.ObjectMeta.DeepCopy(), Status: vkv1alpha1.ShadowPodStatus{Phase: phase}}}
		}
	}
	sent := func(f *Facts) { f.Memory.Sent = true }
	down := func(f *Facts) { f.Network = NetworkDown }
	forgotten := func(f *Facts) {
		f.Memory.Finished, f.Memory.Version, f.Memory.Written = corev1.PodSucceeded, "9", start
	}
	nothing := func(f *Facts) { f.Live = &Live{} }
	ready := func(f *Facts) {
		f.Local.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	onFailure := func(f *Facts) { f.Local.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
	evicted := func(f *Facts) { // an earlier remote pod, which the peer replaced
		f.Memory.Last = f.Remote.DeepCopy()
		f.Memory.Last.UID, f.Memory.Last.Status.Phase = "first", corev1.PodFailed
		f.Memory.Last.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
	}
	unmapped := func(now Offloading) func(*Facts) {
		return func(f *Facts) {
			f.Offloading, f.Mapping, f.Shadow, f.Remote = now, project.NamespaceMapping{}, nil, nil
		}
	}
	sandboxed := func(f *Facts) { f.Local.Spec.RuntimeClassName = new("gvisor") }
	allowed := func(f *Facts) { f.RunWithout = []string{"resourceClaims", "runtimeClassName"} }
	owned := func(by string) func(*Facts) {
		return func(f *Facts) {
			f.Local.OwnerReferences = []metav1.OwnerReference{{Kind: by, Name: "web", UID: "owner", Controller: new(true)}}
		}
	}
	ending := func(since time.Duration) func(*Facts) { // the peer deletes its pod, with half a minute to end
		return func(f *Facts) {
			f.Remote.DeletionTimestamp, f.Remote.DeletionGracePeriodSeconds = &moment, new(int64(30))
			f.StuckSince, f.StuckTimeout = f.Now.Add(-since), 2*time.Minute
		}
	}
	homeless := func(since time.Duration) func(*Facts) { // the peer has created it again, and no node takes it
		return func(f *Facts) {
			f.Remote.Status = corev1.PodStatus{
				Phase:      corev1.PodPending,
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}},
			}
			f.StuckSince, f.StuckTimeout = f.Now.Add(-since), 2*time.Minute
		}
	}
	// The remote pod of the facts stands for itself, and Memory.Last for a remembered one.
	type steps = []func(*Facts)
	reported, amend := Inbound{Report: ReportRemote}, Outbound{Amend: true}
	for _, c := range []struct {
		name    string
		changes steps
		out     Outbound
		in      Inbound
	}{
		{"runs", nil, amend, reported},
		{"unknown namespace", steps{unmapped(Unknown)}, Outbound{}, Inbound{}},
		{"its node there may be lost", steps{owned("ReplicaSet"), ending(time.Minute)}, amend, Inbound{Report: ReportRemote, RequeueAfter: 90 * time.Second}},
		{"its node there is lost", steps{owned("ReplicaSet"), ending(time.Hour)}, amend, Inbound{Report: ReportRemote, Replace: true}},
		{"its node there is lost, and its controller waits for its end", steps{owned("StatefulSet"), ending(time.Hour)}, amend, reported},
		{"its node there is lost, and no controller replaces it", steps{ending(time.Hour)}, amend, reported},
		{"its node there is lost, and it is being deleted", steps{owned("ReplicaSet"), deleting, ending(time.Hour)}, Outbound{Delete: true}, reported},
		{
			"its node there is lost, and the remote namespace is being deleted",
			steps{owned("ReplicaSet"), ending(time.Hour), func(f *Facts) { f.Terminating = true }},
			Outbound{},
			reported,
		},
		{
			"it ends there for ever, with an endless period",
			steps{owned("ReplicaSet"), ending(time.Hour), func(f *Facts) { f.Remote.DeletionGracePeriodSeconds = new(int64(math.MaxInt64)) }},
			amend,
			Inbound{Report: ReportRemote, RequeueAfter: maxPeriod + 2*time.Minute - time.Hour},
		},
		{
			"its end there is reported, and something holds it",
			steps{owned("ReplicaSet"), ending(time.Hour), failed},
			amend,
			Inbound{Report: ReportRemote, Restarts: true},
		},
		{"no node there takes it any more", steps{owned("StatefulSet"), homeless(time.Hour)}, amend, Inbound{Report: ReportRemote, Replace: true}},
		{"no node there takes it at the moment", steps{owned("ReplicaSet"), homeless(time.Minute)}, amend, Inbound{Report: ReportRemote, RequeueAfter: time.Minute}},
		{"no node there takes it, and it has never run", steps{owned("ReplicaSet"), unstarted, homeless(time.Hour)}, amend, reported},
		{"no node there takes it any more, and its failure would count", steps{owned("Job"), once, homeless(time.Hour)}, amend, reported},
		{"no node there takes it any more, and its controller has no other", steps{owned("DaemonSet"), homeless(time.Hour)}, amend, reported},
		{"not compared yet", steps{func(f *Facts) { f.Compared = false }}, Outbound{}, reported},
		{"the cache of local pods is not current", steps{func(f *Facts) { f.LocalCurrent = false }}, Outbound{Retry: true}, reported},

		// What is created, changed and deleted in the peer.
		{"new", steps{unstarted, gone}, Outbound{Create: true}, Inbound{}},
		{"new, and the remote namespace is being deleted", steps{unstarted, gone, func(f *Facts) { f.Terminating = true }}, Outbound{}, Inbound{}},
		{"new, and the cache of ShadowPods is not current", steps{unstarted, gone, func(f *Facts) { f.Shadows.Current = false }}, Outbound{Retry: true}, Inbound{}},
		{"the pod of a predecessor is left", steps{unstarted, gone, func(f *Facts) {
			f.Remote = running().Remote
			f.Remote.Annotations[labels.Fence] = "earlier"
		}}, Outbound{}, Inbound{Report: ReportWaiting}},
		{
			"the ShadowPod of a predecessor is left",
			steps{unstarted, remoteGone, func(f *Facts) { f.Shadow.Annotations[labels.Fence] = "earlier" }},
			Outbound{Delete: true},
			Inbound{Report: ReportWaiting},
		},
		{"the ShadowPod of a deleted pod is left", steps{func(f *Facts) { f.Local = nil }}, Outbound{Delete: true}, Inbound{}},
		{"another client's ShadowPod has the name", steps{unstarted, remoteGone, func(f *Facts) { f.Shadow.Labels = nil }}, Outbound{Unmanaged: true}, Inbound{}},
		{"its ShadowPod is being deleted", steps{shadowDeleting}, Outbound{}, reported},
		{"failed here, and runs there", steps{finished}, Outbound{Delete: true}, reported},
		{"failed here, and runs there as far as an outdated cache knows", steps{finished, func(f *Facts) { f.Remotes.Current = false }}, Outbound{}, Inbound{}},
		{"ended here and there", steps{finished, failed}, Outbound{}, reported},
		{
			"its end was reported, and the cache does not show that",
			steps{gone, forgotten, func(f *Facts) { f.Memory.Written = f.Now }},
			Outbound{},
			Inbound{RequeueAfter: SettleTimeout},
		},
		{"its end was reported, and the API server forgot it", steps{gone, forgotten}, Outbound{}, Inbound{Report: ReportGone, Phase: corev1.PodSucceeded}},
		{"the same, and the ShadowPod is there", steps{remoteGone, forgotten}, Outbound{}, Inbound{NeedsLive: true}},
		{
			"the same, and the ShadowPod has recorded it",
			steps{remoteGone, forgotten, live(vkv1alpha1.ShadowPodSucceeded)},
			Outbound{},
			Inbound{Report: ReportGone, Phase: corev1.PodSucceeded},
		},

		// A pod that would lack its sandbox in the peer.
		{"new, and asks for a sandbox", steps{unstarted, gone, sandboxed}, Outbound{Refuse: true}, Inbound{Report: ReportUnmet}},
		{"new, and may run without its sandbox", steps{unstarted, gone, sandboxed, allowed}, Outbound{Create: true}, Inbound{}},
		{
			"new, and may run without something else",
			steps{unstarted, gone, sandboxed, func(f *Facts) { f.RunWithout = []string{"os"} }},
			Outbound{Refuse: true},
			Inbound{Report: ReportUnmet},
		},
		{"runs without its sandbox since an older version sent it", steps{sandboxed}, amend, reported},
		{
			"was sent without its sandbox, and the peer has not created it",
			steps{unstarted, remoteGone, sandboxed, func(f *Facts) { f.Now = start.Add(time.Second) }},
			amend,
			Inbound{RequeueAfter: SettleTimeout - time.Second},
		},
		{"was sent without its sandbox a moment ago", steps{unstarted, gone, sandboxed, sent}, Outbound{Create: true}, Inbound{}},
		{"ran without its sandbox, and vanished", steps{ready, gone, sandboxed}, Outbound{Refuse: true}, Inbound{Report: ReportMissing}},
		{"ran once without its sandbox, and vanished", steps{once, gone, sandboxed}, Outbound{}, Inbound{Report: ReportVanished}},
		{"asks for a sandbox, and is being deleted", steps{unstarted, gone, sandboxed, deleting}, Outbound{}, Inbound{Remove: true}},
		{
			"asks for a sandbox, and the cache of ShadowPods is not current",
			steps{unstarted, gone, sandboxed, func(f *Facts) { f.Shadows.Current = false }},
			Outbound{Retry: true},
			Inbound{},
		},

		// How it ends.
		{"succeeded", steps{once, succeeded}, amend, reported},
		{"evicted", steps{failed, func(f *Facts) { f.Remote.Status.Reason = "Evicted" }}, amend, reported},
		{"deleted there, so the peer creates it again", steps{failed, drained}, amend, Inbound{Report: ReportRemote, Restarts: true}},
		{"evicted, and then deleted there", steps{failed, drained, func(f *Facts) { f.Remote.Status.Reason = "Evicted" }}, amend, reported},
		{"its node is lost, so the peer creates it again", steps{failed, func(f *Facts) {
			f.Remote.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC"}}
		}}, amend, Inbound{Report: ReportRemote, Restarts: true}},
		{"vanished, and may have finished", steps{once, gone}, Outbound{}, Inbound{Report: ReportVanished}},
		{
			"vanished, and its start was reported a moment ago",
			steps{once, unstarted, gone, func(f *Facts) { f.Memory.Started = true }},
			Outbound{},
			Inbound{Report: ReportVanished},
		},
		{"vanished, and is always restarted", steps{gone}, Outbound{Create: true}, Inbound{}},
		{"vanished, and an earlier one was evicted", steps{onFailure, evicted, gone}, Outbound{}, Inbound{Report: ReportVanished}},
		{"vanished while it was Ready, and is always restarted", steps{ready, gone}, Outbound{Create: true}, Inbound{Report: ReportMissing}},
		{
			"vanished while it was Ready, and the ShadowPods are not compared yet",
			steps{ready, gone, func(f *Facts) { f.Compared = false }},
			Outbound{},
			Inbound{Report: ReportMissing},
		},
		{"vanished while it was Ready, with its namespace", steps{ready, gone, func(f *Facts) { f.Terminating = true }}, Outbound{}, Inbound{Report: ReportMissing}},
		{
			"vanished while it was Ready, as far as an outdated cache knows",
			steps{ready, gone, func(f *Facts) { f.Remotes.Current = false }},
			Outbound{Create: true},
			Inbound{},
		},
		{"vanished with its namespace", steps{once, gone, func(f *Facts) { f.Terminating = true }}, Outbound{}, Inbound{}},
		{"vanished after it had ended", steps{once, remembered, gone}, Outbound{}, reported},
		{"its remote pod is gone", steps{remoteGone}, amend, Inbound{NeedsLive: true}},
		{"its remote pod is gone, and it runs again", steps{remoteGone, live("Running")}, amend, Inbound{}},
		{"its remote pod is gone while it was Ready", steps{ready, remoteGone, live("Running")}, amend, Inbound{Report: ReportMissing}},
		{"its remote pod is gone, and its end was recorded", steps{remoteGone, live("Succeeded")}, amend, Inbound{Report: ReportGone, Phase: corev1.PodSucceeded}},
		{
			"its remote pod is gone, and another ShadowPod has its name",
			steps{remoteGone, live("Succeeded"), func(f *Facts) { f.Live.Shadow.UID = "next" }},
			amend,
			Inbound{},
		},
		{
			"its remote pod was not created yet",
			steps{unstarted, remoteGone, func(f *Facts) { f.Now = start.Add(time.Second) }},
			amend,
			Inbound{RequeueAfter: SettleTimeout - time.Second},
		},

		// How it is deleted.
		{"is being deleted", steps{deleting}, Outbound{Delete: true}, reported},
		{
			"is being deleted and ends there, and the peer could create it again",
			steps{deleting, failed, drained},
			Outbound{Delete: true},
			Inbound{Report: ReportRemote, Restarts: true},
		},
		{"is being deleted and ends there, and the peer knows", steps{deleting, failed, drained, shadowDeleting}, Outbound{}, reported},
		{"is being deleted with another period", steps{deletingIn(3)}, Outbound{Delete: true, Period: 3}, reported},
		{"is being deleted with a longer period", steps{deletingIn(600)}, Outbound{Delete: true, Period: 600}, reported},
		{"is being deleted with that of its manifest", steps{manifest(600), deletingIn(600)}, Outbound{Delete: true}, reported},
		{"has none in its manifest", steps{manifest(0), deletingIn(0)}, Outbound{Delete: true}, reported},
		{"is being deleted at once, and a finalizer holds it", steps{held, deletingIn(0)}, Outbound{Delete: true, Period: 1}, reported},
		{"its period was announced, and the deletion failed", steps{deletingIn(3), announced("3")}, Outbound{Delete: true}, reported},
		{"its period was shortened before the deletion", steps{deletingIn(3), announced("60")}, Outbound{Delete: true, Period: 3}, reported},
		{"its period is shortened while it ends", steps{deletingIn(3), shadowDeleting}, Outbound{Period: 3}, reported},
		{"its period is shortened once more", steps{deletingIn(3), shadowDeleting, announced("20")}, Outbound{Period: 3}, reported},
		{"its period is shortened, and announced", steps{deletingIn(3), shadowDeleting, announced("3")}, Outbound{}, reported},
		{"a longer period comes too late", steps{deletingIn(600), shadowDeleting}, Outbound{}, reported},
		{"an earlier period is not readable", steps{deletingIn(3), shadowDeleting, announced("soon")}, Outbound{Period: 3}, reported},
		{"was removed by force", steps{forced}, Outbound{Delete: true, Period: 1}, Inbound{}},
		{"was removed by force while it ended", steps{forced, shadowDeleting, announced("60")}, Outbound{Period: 1}, Inbound{}},
		{"was removed by force, and the peer knows", steps{forced, shadowDeleting, announced("1")}, Outbound{}, Inbound{}},
		{"had ended here, and is deleted", steps{finished, deletingIn(0)}, Outbound{Delete: true}, reported},
		{"its predecessor was removed by force", steps{unstarted, remoteGone, forcedBefore}, Outbound{Delete: true, Period: 1}, Inbound{Report: ReportWaiting}},
		{"its predecessor ends", steps{unstarted, remoteGone, forcedBefore, shadowDeleting, announced("1")}, Outbound{}, Inbound{Report: ReportWaiting}},
		{"its predecessor is gone, and it is on its way", steps{unstarted, waited, gone}, Outbound{Create: true}, Inbound{Report: ReportWaited}},
		{"its predecessor is gone, and the peer has its ShadowPod", steps{unstarted, waited, remoteGone}, amend, Inbound{Report: ReportWaited}},
		{"waited for its predecessor, and runs", steps{waited}, amend, reported},
		{
			"waits for its predecessor, and is deleted",
			steps{unstarted, waited, remoteGone, forcedBefore, shadowDeleting, announced("1"), deleting},
			Outbound{},
			Inbound{Remove: true},
		},
		{"its remote pod is gone, its ShadowPod is not", steps{deleting, remoteGone, shadowDeleting}, Outbound{}, Inbound{}},
		{"nothing of it is left", steps{deleting, gone}, Outbound{}, Inbound{Remove: true}},
		{
			"nothing of it is left, and only a finalizer holds it",
			steps{deleting, held, gone, func(f *Facts) { f.Local.DeletionGracePeriodSeconds = new(int64(0)) }},
			Outbound{},
			Inbound{Report: ReportGone},
		},
		{"nothing of it is left, and a finalizer waits for its end", steps{deleting, held, gone}, Outbound{}, Inbound{Report: ReportGone, Remove: true}},
		{"nothing of it is left, and a finalizer waits for an end that is known", steps{deleting, held, remembered, gone}, Outbound{}, reported},
		{"nothing of it is left, and its end was reported", steps{deleting, held, remembered, gone, finished}, Outbound{}, Inbound{Report: ReportGone, Remove: true}},
		{"nothing of it is left in outdated caches", steps{deleting, gone, func(f *Facts) { f.Remotes.Current = false }}, Outbound{}, Inbound{Retry: true}},
		{"its ShadowPod is on its way", steps{deleting, gone, sent, func(f *Facts) { f.Memory.Sending = true }}, Outbound{}, Inbound{RequeueAfter: statusDebounce}},
		{"its ShadowPod was sent, and the cache has not shown it", steps{deleting, gone, sent}, Outbound{}, Inbound{NeedsLive: true}},
		{"its ShadowPod was sent, and is there", steps{deleting, sent, live("Running"), gone}, Outbound{}, Inbound{RequeueAfter: statusDebounce}},
		{"its ShadowPod was sent, and is not there", steps{deleting, gone, sent, nothing}, Outbound{}, Inbound{Remove: true}},

		// While the caches or the peer do not answer.
		{"the peer does not answer", steps{func(f *Facts) { f.Reachable = false }}, amend, Inbound{}},
		{"the peer has not answered for long", steps{func(f *Facts) {
			f.Reachable, f.Unreachable = false, true
			f.Local.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}}, amend, Inbound{Report: ReportUnreachable}},
		{"the peer has not answered for long, and the pod is not Ready", steps{func(f *Facts) { f.Reachable, f.Unreachable = false, true }}, amend, Inbound{}},
		{"the peer has not answered for long, and the network was down before", steps{func(f *Facts) {
			f.Reachable, f.Unreachable = false, true
			f.Local.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: podstatus.NetworkUnreachable}}
		}}, amend, Inbound{Report: ReportUnreachable}},
		{"the network between the clusters is down", steps{down}, amend, Inbound{Report: ReportRemote, NetworkDown: true}},
		{"the network is down, and the pod has ended", steps{once, succeeded, down}, amend, Inbound{Report: ReportRemote, NetworkDown: true}},
		{"the network is down, and the pod is being deleted", steps{deleting, down}, Outbound{Delete: true}, Inbound{Report: ReportRemote, NetworkDown: true}},
		{"the network is down, and nothing is left of a deleted pod", steps{deleting, gone, down}, Outbound{}, Inbound{Remove: true}},
		{"whether the network works is not known yet", steps{func(f *Facts) { f.Network = NetworkUnknown }}, amend, Inbound{}},
		{"the caches are not filled", steps{func(f *Facts) { f.Remotes = Cache{} }}, amend, Inbound{}},
		{"the cache is older than our last status", steps{func(f *Facts) {
			f.Memory.Version, f.Memory.Written = "8", f.Now.Add(-time.Second)
		}}, amend, Inbound{RequeueAfter: SettleTimeout - time.Second}},
		{"the cache stays older than our last status", steps{func(f *Facts) { f.Memory.Version, f.Memory.Written = "8", f.Now.Add(-time.Minute) }}, amend, reported},

		// In a namespace without a remote namespace.
		{"new, not offloaded", steps{unmapped(None), unstarted}, Outbound{}, Inbound{Report: ReportNotOffloaded}},
		{"ran, not offloaded any more", steps{unmapped(None)}, Outbound{}, Inbound{Report: ReportNotOffloaded}},
		{"new, and the remote namespace is not there yet", steps{unmapped(Pending), unstarted}, Outbound{}, Inbound{Report: ReportNotOffloaded}},
		{"ran, and the remote namespace is created again", steps{unmapped(Pending)}, Outbound{}, Inbound{}},
		{"is Ready, and the remote namespace is created again", steps{ready, unmapped(Pending)}, Outbound{}, Inbound{}},
		{"is Ready, and the peer refuses the remote namespace", steps{ready, unmapped(Refused)}, Outbound{}, Inbound{Report: ReportMissing}},
		{"new, and the peer refuses the remote namespace", steps{unmapped(Refused), unstarted}, Outbound{}, Inbound{Report: ReportNotOffloaded}},
		{"ran, is being deleted, and the peer refuses the remote namespace", steps{unmapped(Refused), deleting}, Outbound{}, Inbound{}},
		{"ran, is being deleted, and the remote namespace is created again", steps{unmapped(Pending), deleting}, Outbound{}, Inbound{}},
		{"is being deleted, not offloaded", steps{unmapped(None), deleting}, Outbound{}, Inbound{Remove: true}},
		{"is being deleted, not offloaded any more, and its end is known", steps{remembered, unmapped(None), deleting, held}, Outbound{}, reported},
		{
			"is being deleted, and was never offloaded",
			steps{unmapped(Pending), unstarted, deleting, func(f *Facts) { f.Local.Status.Reason = podstatus.OffloadingBackOff }},
			Outbound{},
			Inbound{Remove: true},
		},
	} {
		f := running()
		for _, change := range c.changes {
			change(&f)
		}
		want := Step{Outbound: c.out, Inbound: c.in}
		if c.in.Report == ReportRemote {
			if want.Inbound.Remote = f.Remote; f.Memory.Last != nil {
				want.Inbound.Remote = f.Memory.Last
			}
		}
		got := Plan(&f)
		if got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
		if problem := lawless(&f, got); problem != "" {
			t.Errorf("%s: %s", c.name, problem)
		}
	}
}

// TestBothSidesAgree: however Kubernetes ends a pod of the provider, the consumer reports its end if, and only if, the provider does not create it again.
func TestBothSidesAgree(t *testing.T) {
	condition := func(reason string) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}
	}
	for _, way := range []struct {
		name     string
		phase    corev1.PodPhase
		reason   string
		disrupts []corev1.PodCondition
		deleted  bool
		ends     string // the restart policies of the pods that end so: Always, OnFailure, Never
	}{
		{"its processes succeed", corev1.PodSucceeded, "", nil, false, "AON"},
		{"its processes fail", corev1.PodFailed, "", nil, false, "AON"},
		{"a user deletes it", corev1.PodFailed, "", nil, true, "N"},
		{"a user deletes it, and it succeeds", corev1.PodSucceeded, "", nil, true, "ON"},
		{"evicted by the API", corev1.PodFailed, "", condition("EvictionByEvictionAPI"), true, "N"},
		{"deleted because of a taint", corev1.PodFailed, "", condition("DeletionByTaintManager"), true, "N"},
		{"preempted by the scheduler", corev1.PodFailed, "", condition(corev1.PodReasonPreemptionByScheduler), true, "N"},
		{"its node is gone", corev1.PodFailed, "", condition("DeletionByPodGC"), false, "N"},
		{"its node was unreachable, and is gone", corev1.PodFailed, "NodeLost", condition("DeletionByPodGC"), true, "N"},
		{"evicted by its kubelet", corev1.PodFailed, "Evicted", condition(corev1.PodReasonTerminationByKubelet), false, "AON"},
		{"evicted by its kubelet, then deleted", corev1.PodFailed, "Evicted", condition(corev1.PodReasonTerminationByKubelet), true, "AON"},
		{"its node shuts down", corev1.PodFailed, "Terminated", condition(corev1.PodReasonTerminationByKubelet), false, "AON"},
		{"its node shuts down, then it is deleted", corev1.PodFailed, "Terminated", condition(corev1.PodReasonTerminationByKubelet), true, "AON"},
		{"preempted by its kubelet, then deleted", corev1.PodFailed, "Preempting", condition(corev1.PodReasonTerminationByKubelet), true, "AON"},
		{"its deadline has passed, then it is deleted", corev1.PodFailed, "DeadlineExceeded", nil, true, "AON"},
	} {
		for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
			f := running()
			f.Local.Spec.RestartPolicy = policy
			remote := f.Remote
			remote.Status = corev1.PodStatus{Phase: way.phase, Reason: way.reason, Conditions: way.disrupts}
			if way.deleted {
				remote.DeletionTimestamp, remote.DeletionGracePeriodSeconds = &metav1.Time{Time: start}, new(int64(30))
			}
			theirs := &vkv1alpha1.ShadowPod{ObjectMeta: *f.Shadow.ObjectMeta.DeepCopy()}
			theirs.Spec.Pod.RestartPolicy = policy
			remote.OwnerReferences[0].APIVersion = vkv1alpha1.GroupVersion.String()
			provider := lifecycle.Plan(lifecycle.Facts{Shadow: theirs, Pod: remote, Live: true, Now: f.Now})
			consumer := Plan(&f).Inbound
			ends := strings.Contains(way.ends, string(policy[0]))
			if recorded := podphase.Final(corev1.PodPhase(provider.Phase)); recorded != ends {
				t.Errorf("%s, restart policy %s: the provider records its end: %v, want %v", way.name, policy, recorded, ends)
			}
			if reports := consumer.Report == ReportRemote && !consumer.Restarts; reports != ends {
				t.Errorf("%s, restart policy %s: the consumer reports its end: %v, want %v", way.name, policy, reports, ends)
			}
		}
	}
}

// TestBelongs: only the owner and the fence prove that a remote pod is that of a local one.
func TestBelongs(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Facts)
		want   bool
	}{
		{"it is", func(*Facts) {}, true},
		{"without its ShadowPod", func(f *Facts) { f.Shadow = nil }, true},
		{"of another consumer", func(f *Facts) { f.Remote.Labels = nil }, false},
		{"of another local pod", func(f *Facts) { f.Remote.Annotations[labels.Fence] = "earlier" }, false},
		{"of another controller", func(f *Facts) { f.Remote.OwnerReferences[0].Kind = "ReplicaSet" }, false},
		{"without its fence, and its ShadowPod has it", func(f *Facts) { f.Remote.Annotations = nil }, true},
		{"without its fence, and its ShadowPod is another one", func(f *Facts) { f.Remote.Annotations, f.Shadow.UID = nil, "next" }, false},
	} {
		f := running()
		c.change(&f)
		if got := Belongs(f.Mapping, f.Local, f.Remote, f.Shadow); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestDebounce: what others act on is written at once, and the rest is collected.
func TestDebounce(t *testing.T) {
	isReady := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	isRunning := corev1.PodStatus{Phase: corev1.PodRunning}
	for _, c := range []struct {
		name    string
		is, was corev1.PodStatus
		memory  Memory
		want    time.Duration
	}{
		{"it becomes Ready", isReady, isRunning, Memory{Written: start}, 0},
		{"it becomes Ready for the tenth time", isReady, isRunning, Memory{Returns: 9, ReadyAt: start}, 0},
		{"it becomes Ready for the eleventh time", isReady, isRunning, Memory{Returns: 10, ReadyAt: start}, time.Second},
		{"it becomes Ready for the fourteenth time", isReady, isRunning, Memory{Returns: 13, ReadyAt: start.Add(-2 * time.Second)}, 6 * time.Second},
		{"it becomes Ready once more", isReady, isRunning, Memory{Returns: 1000, ReadyAt: start}, time.Minute},
		{"it becomes Ready after it was left alone", isReady, isRunning, Memory{Returns: 1000, ReadyAt: start.Add(-time.Hour)}, 0},
		{"it becomes not Ready", isRunning, isReady, Memory{Returns: 1000, ReadyAt: start, Written: start}, 0},
		{"it ends", corev1.PodStatus{Phase: corev1.PodFailed}, isRunning, Memory{Written: start}, 0},
		{"first change", isRunning, corev1.PodStatus{}, Memory{}, statusDebounce},
		{"is deleted, and changes", isRunning, isRunning, Memory{Written: start}, notReadyDebounce},
		{"waits already", isReady, isReady, Memory{PendingSince: start.Add(-400 * time.Millisecond), Written: start.Add(-time.Hour)}, 600 * time.Millisecond},
		{"waits for long", isReady, isReady, Memory{PendingSince: start.Add(-time.Hour)}, 0},
		{"not Ready, written a moment ago", isRunning, isRunning, Memory{Written: start.Add(-time.Second)}, notReadyDebounce - time.Second},
	} {
		local := &corev1.Pod{Status: c.was}
		if strings.HasPrefix(c.name, "is deleted") {
			local.DeletionTimestamp = &metav1.Time{Time: start}
		}
		wait, since := Debounce(local, &c.is, c.memory, start)
		if wait != c.want || wait > 0 && since.IsZero() && c.memory.Returns == 0 {
			t.Errorf("%s: %v since %v, want %v", c.name, wait, since, c.want)
		}
	}
}

// TestPlanChangesNothing: the objects of the facts are those of caches.
func TestPlanChangesNothing(t *testing.T) {
	f, same := running(), running()
	Plan(&f)
	if !reflect.DeepEqual(f, same) {
		t.Errorf("changed: %+v", f)
	}
}
