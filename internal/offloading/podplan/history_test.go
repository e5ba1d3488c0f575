// SPDX-License-Identifier: Apache-2.0

package podplan

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/lifecycle"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
	"liqo.io/liqo/internal/offloading/shadow"
)

var between = project.NamespaceMapping{LocalID: "rome", RemoteID: "milan", Local: "shop", Remote: "shop-rome"}

// The caches of a consumer.
const (
	locals = iota
	shadows
	remotes
)

// moment is what both API servers have of one name.
type moment struct {
	local  *corev1.Pod
	shadow *vkv1alpha1.ShadowPod
	remote *corev1.Pod
}

func (m moment) copy() moment {
	return moment{m.local.DeepCopy(), m.shadow.DeepCopy(), m.remote.DeepCopy()}
}

// history simulates one pod name in a namespace of a consumer and its remote namespace: users and controllers of both clusters, the provider as package
// shadow plans it, and a consumer whose caches are late, whose watches break, and which is killed at any moment.
type history struct {
	t      *testing.T
	random *rand.Rand
	log    []string
	now    time.Time
	serial int

	moment
	past []moment // the newest last
	// The caches: the index in past that each has, and its state.
	seen  [3]int
	cache [3]Cache
	// Process state.
	compared, terminating, unreachable bool
	gone                               bool // the remote namespace
	offloading                         Offloading
	memories                           map[types.UID]*Memory
	// sending is the write of a ShadowPod on its way to the provider.
	sending *vkv1alpha1.ShadowPod
	// written: it has arrived, and no deletion was observed since. The applier of the consumer remembers that.
	written bool
	killed  int
	mapping int // counts the mappings

	policy map[types.UID]corev1.RestartPolicy
	// reported are the pods whose start was reported.
	reported map[types.UID]bool
	// over are the pods that must not run again, and why.
	over                                map[types.UID]string
	removed                             map[types.UID]bool
	creations, removals, ends, vanishes int
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(h.log, "\n"))
}

func (h *history) snapshot() { h.past = append(h.past, h.copy()) }

func (h *history) uid() types.UID { h.serial++; return types.UID(fmt.Sprintf("uid-%d", h.serial)) }

func fence(pod *corev1.Pod) types.UID { return types.UID(pod.Annotations[labels.Fence]) }

// changedLocal gives the local pod a new resource version, and removes it if nothing holds it.
func (h *history) changedLocal() {
	h.serial++
	h.local.ResourceVersion = strconv.Itoa(h.serial)
	if h.local.DeletionTimestamp != nil && *h.local.DeletionGracePeriodSeconds == 0 && len(h.local.Finalizers) == 0 {
		h.local = nil
	}
}

func (h *history) deleteLocal(grace int64) {
	if h.local.DeletionTimestamp == nil || grace < *h.local.DeletionGracePeriodSeconds {
		h.local.DeletionTimestamp, h.local.DeletionGracePeriodSeconds = &metav1.Time{Time: h.now}, &grace
	}
	h.changedLocal()
}

// collect deletes, as the garbage collector, a ShadowPod in the foreground whose pod is gone. One with a finalizer waits for the provider's controller.
func (h *history) collect() {
	if h.shadow != nil && h.shadow.DeletionTimestamp != nil && len(h.shadow.Finalizers) == 0 && (h.remote == nil || lifecycle.Owner(h.remote) != string(h.shadow.UID)) {
		h.shadow = nil
	}
}

func (h *history) deleteRemote(grace int64) bool {
	if h.remote == nil {
		return false
	}
	if lifecycle.Terminal(h.remote) || h.remote.Spec.NodeName == "" {
		grace = 0
	}
	if h.remote.DeletionTimestamp == nil || grace < *h.remote.DeletionGracePeriodSeconds {
		h.remote.DeletionTimestamp, h.remote.DeletionGracePeriodSeconds = &metav1.Time{Time: h.now}, &grace
	}
	h.vanish()
	return true
}

func (h *history) vanish() {
	if h.remote.DeletionTimestamp != nil && *h.remote.DeletionGracePeriodSeconds == 0 && len(h.remote.Finalizers) == 0 {
		h.remote = nil
		h.collect()
	}
}

// kubelet changes the phase of the remote pod. The oracle records from when on the pod must not run again.
func (h *history) kubelet(from, to corev1.PodPhase, reason string) bool {
	if h.remote == nil || h.remote.Spec.NodeName == "" || h.remote.Status.Phase != from {
		return false
	}
	h.remote.Status.Phase, h.remote.Status.Reason = to, reason
	if to == corev1.PodRunning {
		h.remote.Status.StartTime = &metav1.Time{Time: h.now}
	}
	uid := fence(h.remote)
	switch h.policy[uid] {
	case corev1.RestartPolicyNever:
		if lifecycle.Terminal(h.remote) {
			h.over[uid] = "never restarted, and ended"
		}
	case corev1.RestartPolicyOnFailure:
		if to == corev1.PodSucceeded {
			h.over[uid] = "succeeded"
		}
	}
	return true
}

// mayLose: a pod that was never reported to have started, and is lost with its ShadowPod, may have run. That cannot be known, so no history has it.
func (h *history) mayLose() bool {
	return (h.shadow == nil || h.reported[types.UID(h.shadow.Spec.Fence)]) && (h.remote == nil || h.reported[fence(h.remote)])
}

func (h *history) remotePolicy() corev1.RestartPolicy { return h.policy[fence(h.remote)] }

type actor struct {
	name string
	act  func(*history) bool
}

// rare are the actors that act once in so many of their turns.
var rare = map[string]int{
	"user deletes": 10, "user deletes by force": 30, "local pod is given up": 15, "API server is restored from before the end": 10, "remote pod is deleted": 8, "remote pod is deleted by force": 15,
	"remote node is lost": 10, "ShadowPod is lost": 6, "store of the peer is lost": 2, "a watch breaks": 8, "peer becomes unreachable": 8, "remote namespace is lost": 20,
	"namespace map": 4, "killed": 20, "time": 2, "kubelet evicts": 5,
}

// actors change what the two API servers have.
var actors = []actor{
	{"user creates", func(h *history) bool {
		if h.local != nil {
			return false
		}
		h.local = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: h.uid(), CreationTimestamp: metav1.NewTime(h.now)}}
		h.local.Spec.RestartPolicy = []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}[h.random.Intn(3)]
		h.local.Spec.Containers = []corev1.Container{{Name: "c", Image: "image"}}
		h.policy[h.local.UID] = h.local.Spec.RestartPolicy
		if h.random.Intn(3) == 0 {
			h.local.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
		}
		h.changedLocal()
		return true
	}},
	{"user deletes", func(h *history) bool {
		if h.local == nil || h.local.DeletionTimestamp != nil {
			return false
		}
		h.deleteLocal(30)
		return true
	}},
	{"user deletes by force", func(h *history) bool {
		if h.local == nil {
			return false
		}
		h.deleteLocal(0)
		return true
	}},
	{"local controller sees the end", func(h *history) bool {
		if h.local == nil || len(h.local.Finalizers) == 0 || !podphase.Final(h.local.Status.Phase) {
			return false
		}
		h.local.Finalizers = nil
		h.changedLocal()
		return true
	}},
	{"local pod is given up", func(h *history) bool {
		if h.local == nil || h.local.Status.StartTime == nil || podphase.Final(h.local.Status.Phase) {
			return false
		}
		h.local.Status.Phase = corev1.PodFailed
		h.changedLocal()
		return true
	}},
	{"API server is restored from before the end", func(h *history) bool {
		if h.local == nil || !podphase.Final(h.local.Status.Phase) {
			return false
		}
		for _, old := range slices.Backward(h.past) {
			if old.local != nil && old.local.UID == h.local.UID && old.local.Status.StartTime != nil && !podphase.Final(old.local.Status.Phase) {
				h.local.Status, h.local.ResourceVersion = *old.local.Status.DeepCopy(), old.local.ResourceVersion
				if h.policy[h.local.UID] == corev1.RestartPolicyAlways {
					delete(h.over, h.local.UID) // if the process is killed as well, nothing shows any more that it ended
				}
				return true
			}
		}
		return false
	}},
	{"provider", (*history).provider},
	{"scheduler", func(h *history) bool {
		if h.remote == nil || h.remote.Spec.NodeName != "" || h.remote.DeletionTimestamp != nil {
			return false
		}
		h.remote.Spec.NodeName = "node"
		return true
	}},
	{"kubelet runs", func(h *history) bool {
		return h.remote != nil && h.remote.DeletionTimestamp == nil && h.kubelet(corev1.PodPending, corev1.PodRunning, "")
	}},
	{"processes succeed", func(h *history) bool {
		return h.remote != nil && h.remotePolicy() != corev1.RestartPolicyAlways && h.kubelet(corev1.PodRunning, corev1.PodSucceeded, "")
	}},
	{"processes fail", func(h *history) bool {
		return h.remote != nil && h.remotePolicy() == corev1.RestartPolicyNever && h.kubelet(corev1.PodRunning, corev1.PodFailed, "")
	}},
	{"kubelet evicts", func(h *history) bool {
		return h.remote != nil && h.remote.DeletionTimestamp == nil && h.kubelet(corev1.PodRunning, corev1.PodFailed, "Evicted")
	}},
	{"kubelet ends what is deleted", func(h *history) bool {
		if h.remote == nil || h.remote.DeletionTimestamp == nil {
			return false
		}
		if !lifecycle.Terminal(h.remote) && h.remote.Spec.NodeName != "" {
			h.kubelet(h.remote.Status.Phase, []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}[h.random.Intn(2)], "")
		}
		h.remote.DeletionGracePeriodSeconds = new(int64(0))
		h.vanish()
		return true
	}},
	{"remote pod is deleted", func(h *history) bool { return h.deleteRemote(30) }},
	{"remote pod is deleted by force", func(h *history) bool { return h.deleteRemote(0) }},
	{"remote node is lost", func(h *history) bool {
		if h.remote == nil || h.remote.Spec.NodeName == "" || lifecycle.Terminal(h.remote) {
			return false
		}
		h.remote.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC"}}
		h.kubelet(h.remote.Status.Phase, corev1.PodFailed, "")
		return h.deleteRemote(0)
	}},
	{"garbage collector", func(h *history) bool {
		if h.remote == nil || h.shadow != nil && h.shadow.DeletionTimestamp == nil && lifecycle.Owner(h.remote) == string(h.shadow.UID) {
			return false
		}
		return h.deleteRemote(30)
	}},
	{"ShadowPod is lost", func(h *history) bool {
		if h.shadow == nil || !h.mayLose() {
			return false
		}
		h.shadow.DeletionTimestamp = &metav1.Time{Time: h.now}
		h.collect()
		return true
	}},
	{"store of the peer is lost", func(h *history) bool {
		if h.shadow == nil && h.remote == nil || !h.mayLose() {
			return false
		}
		h.shadow, h.remote = nil, nil
		return true
	}},
	{"remote namespace is lost", func(h *history) bool {
		if h.gone || !h.mayLose() {
			return false
		}
		h.gone, h.shadow, h.remote = true, nil, nil
		h.land()
		return true
	}},
	{"remote namespace is back", func(h *history) bool { was := h.gone; h.gone = false; return was }},
	{"write lands", func(h *history) bool { landing := h.sending != nil; h.land(); return landing }},
}

// within are what happens in the consumer's process, and around it.
var within = []actor{
	{"time", func(h *history) bool { h.now = h.now.Add(5 * time.Second); return true }},
	{"watch of local pods", func(h *history) bool { return h.deliver(locals) }},
	{"watch of ShadowPods", func(h *history) bool { return h.deliver(shadows) }},
	{"watch of remote pods", func(h *history) bool { return h.deliver(remotes) }},
	{"watch of ShadowPods goes on", func(h *history) bool { return h.deliver(shadows) }},
	{"watch of remote pods goes on", func(h *history) bool { return h.deliver(remotes) }},
	{"a watch breaks", func(h *history) bool {
		h.cache[h.random.Intn(3)].Current = false
		return true
	}},
	{"watches resume", func(h *history) bool {
		before := h.cache
		for i := range h.cache {
			h.cache[i].Current = h.cache[i].Synced
		}
		return h.cache != before
	}},
	{"caches are filled", func(h *history) bool {
		before := h.cache
		for i := range h.cache {
			if !h.cache[i].Synced {
				h.seen[i], h.cache[i] = len(h.past)-1, Cache{Synced: true, Current: true}
				if i == remotes {
					h.rememberEnd() // a list is handled as events are
				}
			}
		}
		return h.cache != before
	}},
	{"mapping is compared", func(h *history) bool {
		before := h.compared
		h.compared = h.compared || h.cache[shadows].Synced && h.cache[remotes].Synced
		return h.compared != before
	}},
	{"peer becomes unreachable", func(h *history) bool { h.unreachable = h.random.Intn(3) == 0; return true }},
	{"namespace map", func(h *history) bool {
		was := h.offloading == Mapped
		h.offloading = Mapped
		if h.gone {
			h.offloading = []Offloading{Pending, None}[h.random.Intn(2)]
		}
		terminating := h.random.Intn(6) == 0
		if was && h.offloading != Mapped || h.terminating && !terminating { // the mapping ends, or is another one
			h.cache[shadows], h.cache[remotes], h.compared = Cache{}, Cache{}, false
			h.mapping++
			h.land() // its context ends
			h.written = false
		}
		h.terminating = terminating
		return true
	}},
	{"killed", func(h *history) bool {
		if h.random.Intn(2) == 0 {
			h.land()
			h.snapshot()
		}
		h.killed++
		h.offloading, h.terminating, h.written = Unknown, false, false
		h.sending, h.memories, h.compared, h.cache = nil, map[types.UID]*Memory{}, false, [3]Cache{}
		return true
	}},
}

// provider executes the plan of the provider's controller on live facts. Package shadow tests it with stale ones.
func (h *history) provider() bool {
	facts := lifecycle.Facts{Shadow: h.shadow.DeepCopy(), Pod: h.remote.DeepCopy(), Live: true, Now: h.now}
	step := lifecycle.Plan(facts)
	if step.NeedsPod {
		facts.PodLive = true
		step = lifecycle.Plan(facts)
	}
	switch {
	case step.Create:
		uid := types.UID(h.shadow.Spec.Fence)
		if why := h.over[uid]; why != "" {
			h.fail("%s runs again, although it %s", uid, why)
		}
		if h.removed[uid] {
			h.fail("%s runs although the local pod was removed", uid)
		}
		h.remote = shadow.Pod(h.shadow, between.LocalID, metadata.Allowed{})
		h.remote.UID, h.remote.Status.Phase, h.remote.CreationTimestamp = h.uid(), corev1.PodPending, metav1.NewTime(h.now)
		h.creations++
		return true
	case step.Delete:
		h.deleteRemote(30)
	case step.Free:
		if h.remote != nil && lifecycle.Owner(h.remote) == string(h.shadow.UID) {
			h.fail("the name of %s is free before its pod is gone", h.shadow.Spec.Fence)
		}
		h.shadow = nil
	}
	if step.Phase != "" {
		h.shadow.Status.Phase, h.shadow.Status.PodUID = step.Phase, string(h.remote.UID)
	}
	if step.Release {
		h.remote.Finalizers = nil
		h.vanish()
	}
	return step != lifecycle.Step{}
}

// deliver shows a cache the next snapshot, and handles the event as the consumer does.
func (h *history) deliver(which int) bool {
	if !h.cache[which].Current || h.seen[which] == len(h.past)-1 {
		return false
	}
	before := h.past[h.seen[which]]
	h.seen[which]++
	after := h.past[h.seen[which]]
	switch which {
	case locals:
		if before.local != nil && (after.local == nil || after.local.UID != before.local.UID) {
			delete(h.memories, before.local.UID)
		}
	case shadows:
		h.written = h.written && (after.shadow != nil || before.shadow == nil)
		if after.shadow != nil {
			if known := h.memories[types.UID(after.shadow.Spec.Fence)]; known != nil {
				known.Sent = false
			}
		}
	case remotes:
		h.rememberEnd()
	}
	return true
}

// rememberEnd keeps the remote pod that the cache shows, if it has ended.
func (h *history) rememberEnd() {
	remote := h.cached(remotes).remote
	if remote == nil || !podphase.Final(remote.Status.Phase) {
		return
	}
	if known := h.memories[fence(remote)]; known != nil {
		known.Last = remote
	}
}

func (h *history) cached(which int) moment {
	if !h.cache[which].Synced {
		return moment{}
	}
	return h.past[h.seen[which]]
}

// memory returns the memory of a local pod, and keeps it if the cache has the pod.
func (h *history) memory(local *corev1.Pod) *Memory {
	known := h.memories[local.UID]
	if known == nil {
		known = &Memory{}
		if now := h.cached(locals).local; now != nil && now.UID == local.UID {
			h.memories[local.UID] = known
		}
	}
	return known
}

// others lets up to most random actors act.
func (h *history) others(most int) {
	for range h.random.Intn(most + 1) {
		for range 5 {
			if h.random.Intn(2) == 0 && h.one(actors) {
				h.snapshot()
				break
			} else if h.one(within) {
				break
			}
		}
	}
}

func (h *history) one(of []actor) bool {
	actor := of[h.random.Intn(len(of))]
	if once := rare[actor.name]; once > 0 && h.random.Intn(once) > 0 || !actor.act(h) {
		return false
	}
	h.note("  %s", actor.name)
	return true
}

// view is what a worker observes while the others go on.
type view struct {
	*history
	disturb int
	of      int // the mapping
}

func (v view) State(f *Facts) {
	f.Offloading, f.Terminating, f.Compared = v.offloading, v.terminating, v.compared
	f.LocalCurrent, f.Shadows, f.Remotes = v.cache[locals].Current, v.cache[shadows], v.cache[remotes]
	if v.of != v.mapping {
		f.Shadows, f.Remotes = Cache{}, Cache{}
	}
	f.Reachable, f.Unreachable, f.Now = !v.unreachable, v.unreachable, v.now
	if f.Offloading == Mapped {
		f.Mapping = between
	}
}

func (v view) Local() *corev1.Pod {
	v.others(v.disturb)
	return v.cached(locals).local.DeepCopy()
}

func (v view) Shadow() *metav1.PartialObjectMetadata {
	v.others(v.disturb)
	if full := v.cached(shadows).shadow; full != nil {
		return &metav1.PartialObjectMetadata{ObjectMeta: *full.ObjectMeta.DeepCopy()}
	}
	return nil
}

func (v view) Remote() *corev1.Pod {
	v.others(v.disturb)
	return v.cached(remotes).remote.DeepCopy()
}

func (v view) Memory(local *corev1.Pod) Memory {
	v.others(v.disturb)
	if known := v.memories[local.UID]; known != nil {
		return *known
	}
	return Memory{}
}

func (v view) Forced(types.UID) bool { return v.random.Intn(2) == 0 }

// plan calls Plan, and checks what holds for any facts.
func (h *history) plan(f Facts) Step {
	step := Plan(&f)
	h.note("%+v", step)
	if problem := lawless(&f, step); problem != "" {
		h.fail("%s: %+v", problem, step)
	}
	return step
}

// lawless returns which law a step breaks, whatever the facts are; empty if none.
func lawless(f *Facts, step Step) string {
	out, in := step.Outbound, step.Inbound
	writes := out.Delete || out.Create || out.Amend || out.Period > 0
	known := f.Shadows.Current && f.Remotes.Current
	deleting := f.Local != nil && f.Local.DeletionTimestamp != nil
	switch {
	case writes && (f.Offloading != Mapped || !f.LocalCurrent || !f.Compared):
		return "writes to the peer without knowing what to write"
	case out.Create && !f.Shadows.Current:
		return "creates a ShadowPod without knowing that there is none"
	case (out.Create || out.Amend) && (f.Terminating || deleting || f.finished()):
		return "runs what must not run"
	case (out.Delete || out.Amend || out.Period > 0) && !f.Mapping.Reflected(f.Shadow):
		return "touches an object that is not ours"
	case out.Create && (in.Report == ReportVanished || in.Report == ReportGone || in.Remote != nil && podphase.Final(in.Remote.Status.Phase) && !in.Restarts):
		return "runs a pod and reports its end"
	case in.Remove && !deleting:
		return "removes a local pod that is not being deleted"
	case in.Remove && f.Offloading == Mapped && (!known || f.Shadow != nil && f.shadow() != nil || f.remote() != nil):
		return "removes a local pod without knowing that nothing of it is left"
	case in.Replace && (deleting || !known || f.remote() == nil || StuckOf(f.Remote) == NotStuck):
		return "replaces a pod that is not stuck"
	case in.Report == ReportVanished && !known:
		return "gives up a pod without knowing that it is gone"
	case in.Report == ReportRemote && (in.Remote == nil || f.Local.Status.Phase != corev1.PodFailed && f.Offloading == Mapped && in.Remote != f.Memory.Last && in.Remote != f.Remote):
		return "reports the status of no pod"
	}
	return ""
}

// outbound runs one worker until the write is on its way, or has ended.
func (h *history) outbound(disturb int) (acted bool) {
	if h.unreachable || h.sending != nil {
		return false // the queue is paused; a key has one worker at a time
	}
	process, mapping := h.killed, h.mapping
	f := Observe(view{h, disturb, h.mapping})
	step := h.plan(f).Outbound
	h.others(disturb)
	switch {
	case process != h.killed || mapping != h.mapping:
		return false
	case step.Period > 0 && !step.Delete:
		if h.shadow == nil || h.shadow.UID != f.Shadow.UID {
			return false
		}
		h.shadow = h.shadow.DeepCopy()
		h.shadow.Annotations[labels.DeletionPeriod] = strconv.FormatInt(step.Period, 10)
	case step.Delete:
		if h.shadow == nil || h.shadow.UID != f.Shadow.UID || h.shadow.DeletionTimestamp != nil {
			return false
		}
		h.shadow.DeletionTimestamp = &metav1.Time{Time: h.now}
		h.collect()
	case step.Create:
		now := h.cached(locals).local
		if now == nil || now.UID != f.Local.UID || now.DeletionTimestamp != nil || h.written {
			return false
		}
		known := h.memory(f.Local)
		known.Sent, known.Sending = true, true
		h.sending = &vkv1alpha1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-rome", Name: "web", UID: h.uid(), Annotations: map[string]string{labels.Fence: string(f.Local.UID)},
			Labels: map[string]string{labels.Origin: between.LocalID, labels.Destination: between.RemoteID},
		}, Spec: vkv1alpha1.ShadowPodSpec{Fence: string(f.Local.UID), Pod: f.Local.Spec}}
		if h.random.Intn(2) == 0 { // by the provider's webhook; an earlier provider adds nothing
			h.sending.Finalizers = []string{labels.FinalizerPodGone}
		}
		if disturb == 0 {
			h.land()
		}
	default:
		return false
	}
	h.snapshot()
	return true
}

// land lets the write of a ShadowPod arrive, and its answer come back.
func (h *history) land() {
	if h.sending == nil {
		return
	}
	if h.shadow == nil && !h.gone {
		h.shadow, h.written = h.sending, true
	}
	if known := h.memories[types.UID(h.sending.Spec.Fence)]; known != nil {
		known.Sending = false
	}
	h.sending = nil
}

func (h *history) inbound(disturb int) (acted bool) {
	process := h.killed
	f := Observe(view{h, disturb, h.mapping})
	step := h.plan(f).Inbound
	if step.NeedsLive {
		h.others(disturb)
		if h.unreachable {
			return false
		}
		f.Live = &Live{Shadow: h.shadow.DeepCopy()}
		if step = h.plan(f).Inbound; step.NeedsLive {
			h.fail("it asks for the live ShadowPod although it has that")
		}
	}
	h.others(disturb)
	if process != h.killed {
		return false
	}
	if step.Report != ReportNothing {
		acted = h.report(&f, step)
	}
	if step.Remove && h.local != nil && h.local.UID == f.Local.UID {
		h.removed[f.Local.UID] = true
		h.removals++
		switch {
		case h.shadow != nil && h.shadow.Spec.Fence == string(f.Local.UID):
			h.fail("removed the local pod although its ShadowPod exists")
		case h.sending != nil && h.sending.Spec.Fence == string(f.Local.UID):
			h.fail("removed the local pod although its ShadowPod is on its way")
		case h.remote != nil && fence(h.remote) == f.Local.UID:
			h.fail("removed the local pod although its remote pod exists")
		}
		h.deleteLocal(0)
		acted = true
	}
	h.snapshot()
	return acted
}

// report writes a status, as far as the laws and the plan depend on it.
func (h *history) report(f *Facts, step Inbound) bool {
	status := *f.Local.Status.DeepCopy()
	switch step.Report {
	case ReportRemote:
		status, _ = podstatus.Of(podstatus.Facts{Mapping: f.Mapping, Local: f.Local, Remote: step.Remote})
		if step.Restarts && !podphase.Final(f.Local.Status.Phase) {
			status.Phase = corev1.PodRunning
		}
	case ReportGone:
		if status = podstatus.Gone(f.Local, metav1.NewTime(h.now)); step.Phase != "" {
			status.Phase = step.Phase
		}
	case ReportVanished:
		status = podstatus.Vanished(f.Local, metav1.NewTime(h.now))
		h.vanishes++
	case ReportUnreachable:
		status = podstatus.Unreachable(f.Local, metav1.NewTime(h.now))
	case ReportNotOffloaded:
		status = podstatus.NotOffloaded(f.Local, metav1.NewTime(h.now))
	}
	if reflect.DeepEqual(status, f.Local.Status) || h.local == nil || h.local.UID != f.Local.UID {
		return false
	}
	if podphase.Final(h.local.Status.Phase) {
		return false // given up meanwhile
	}
	if podphase.Final(status.Phase) {
		h.ends++
		// A pod that is always restarted can be deleted after it was evicted, and before the provider has recorded that. It runs again, until Outbound ends it.
		recorded := h.shadow == nil || h.shadow.DeletionTimestamp != nil || podphase.Final(corev1.PodPhase(h.shadow.Status.Phase))
		if recorded || h.policy[f.Local.UID] != corev1.RestartPolicyAlways {
			h.over[f.Local.UID] = "was reported to have ended"
		}
	}
	h.reported[h.local.UID] = h.reported[h.local.UID] || status.StartTime != nil
	h.local.Status = status
	h.changedLocal()
	if h.local != nil {
		known := h.memory(f.Local)
		known.Version, known.Written = h.local.ResourceVersion, h.now
		known.Started = known.Started || status.StartTime != nil
		if podphase.Final(status.Phase) {
			known.Finished = status.Phase
		}
	}
	return true
}

// TestRandomHistories: for any order of events, and whatever the caches have seen of them,
//   - no pod runs again after it has ended, or after its end was reported;
//   - a local pod is removed only when nothing of it is left in the peer, or on its way there;
//   - nothing is decided on caches that are not current;
//
// and when the others stop, both clusters agree.
func TestRandomHistories(t *testing.T) {
	var creations, removals, ends, vanishes int
	for seed := range int64(1000) {
		h := &history{
			t: t, random: rand.New(rand.NewSource(seed)), now: time.Unix(1_700_000_000, 0), offloading: Mapped,
			memories: map[types.UID]*Memory{}, policy: map[types.UID]corev1.RestartPolicy{}, over: map[types.UID]string{}, removed: map[types.UID]bool{}, reported: map[types.UID]bool{},
		}
		h.note("seed %d", seed)
		h.snapshot()
		for range 60 {
			h.others(4)
			if h.random.Intn(2) == 0 {
				h.note("outbound")
				h.outbound(2)
			} else {
				h.note("inbound")
				h.inbound(2)
			}
		}
		h.settle()
		creations, removals, ends, vanishes = creations+h.creations, removals+h.removals, ends+h.ends, vanishes+h.vanishes
	}
	t.Logf("%d remote pods, %d removals, %d ends reported, %d pods vanished", creations, removals, ends, vanishes)
	if creations < 1000 || removals < 700 || ends < 500 || vanishes < 8 {
		t.Error("too few to prove anything")
	}
}

// settle lets everything go on that has begun, with a peer that answers, and starts nothing new.
func (h *history) settle() {
	h.note("settle")
	h.land()
	h.unreachable, h.gone, h.offloading = false, false, Mapped
	if h.terminating {
		h.terminating, h.compared, h.cache = false, false, [3]Cache{}
	}
	finish := map[string]bool{
		"caches are filled": true, "watches resume": true, "mapping is compared": true, "provider": true, "scheduler": true, "kubelet runs": true,
		"kubelet ends what is deleted": true, "garbage collector": true, "time": true, "local controller sees the end": true,
	}
	acted := true
	for range 60 {
		acted = false
		for _, actor := range slices.Concat(within, actors) {
			if finish[actor.name] && actor.act(h) {
				h.snapshot()
			}
		}
		for which := range h.cache {
			for h.deliver(which) {
			}
		}
		h.written = false // the applier remembers it for seconds
		acted = h.outbound(0) || acted
		acted = h.inbound(0) || acted
	}
	local, remote := h.local, h.remote
	switch {
	case acted:
		h.fail("it does not converge")
	case local == nil || podphase.Final(local.Status.Phase) && local.DeletionTimestamp == nil:
		if remote != nil && !lifecycle.Terminal(remote) {
			h.fail("a pod runs in the peer for a local pod that is gone or has ended")
		}
	case local.DeletionTimestamp != nil:
		h.fail("the local pod stays: %v %+v, %+v, %+v", local.Finalizers, local.Status, h.shadow, remote)
	case remote == nil || fence(remote) != local.UID || remote.Status.Phase != corev1.PodRunning || local.Status.Phase != corev1.PodRunning:
		h.fail("the pod does not run: %+v, %+v, %+v", local.Status, h.shadow, remote)
	}
}
