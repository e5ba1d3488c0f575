// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
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
	"liqo.io/liqo/internal/kube/kubetest/single"
	"liqo.io/liqo/internal/offloading/metadata"
	"liqo.io/liqo/internal/offloading/shadow"
)

// history simulates one name in a namespace of a provider, with every actor that changes it: the consumer, the kubelet, the garbage
// collector, an administrator, and controllers that read stale snapshots and are killed at any moment. It is a small API server.
type history struct {
	t      *testing.T
	random *rand.Rand
	log    []string
	now    time.Time
	skew   time.Duration // by which the controllers' clock is wrong
	serial int

	shadow *vkv1alpha1.ShadowPod
	pod    *corev1.Pod
	// Snapshots of both, the newest last, and the index of those that the cache has.
	shadows []*vkv1alpha1.ShadowPod
	pods    []*corev1.Pod
	seenS   int
	seenP   int

	// over are the fences whose pod has ended: no pod may be created for them again.
	over map[string]string
	// fences has the fence of each pod by UID.
	fences  map[types.UID]string
	created map[string]int
	policy  map[string]corev1.RestartPolicy
	freed   int
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(h.log, "\n"))
}

// snapshot records the state that a watch would deliver.
func (h *history) snapshot() {
	h.shadows, h.pods = append(h.shadows, h.shadow.DeepCopy()), append(h.pods, h.pod.DeepCopy())
}

func (h *history) uid() types.UID { h.serial++; return types.UID(fmt.Sprintf("uid-%d", h.serial)) }

// foregroundCollector is the part of the garbage collector that we do not depend on.
const foregroundCollector = "garbage collector, in the foreground"

var actors = []struct {
	name string
	act  func(*history) bool
}{
	{"consumer creates", func(h *history) bool {
		if h.shadow != nil {
			return false
		}
		policy := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}[h.random.Intn(3)]
		uid := h.uid()
		h.shadow = planned(func(s *vkv1alpha1.ShadowPod) {
			s.UID, s.Spec.Fence, s.Spec.Pod.RestartPolicy = uid, "fence-of-"+string(uid), policy
			if h.random.Intn(2) == 0 { // by the webhook, which earlier ones have not passed
				s.Finalizers = []string{labels.FinalizerPodGone}
			}
		})
		h.policy[h.shadow.Spec.Fence] = policy
		return true
	}},
	{"consumer deletes", func(h *history) bool {
		if h.shadow == nil || h.shadow.DeletionTimestamp != nil {
			return false
		}
		return h.deleteShadow(len(h.shadow.Finalizers) == 0)
	}},
	{"administrator deletes in the background", func(h *history) bool { return h.deleteShadow(false) }},
	{"administrator deletes in the foreground", func(h *history) bool { return h.random.Intn(4) == 0 && h.deleteShadow(true) }},
	{"administrator deletes, orphaning", func(h *history) bool {
		if h.shadow == nil || h.shadow.DeletionTimestamp != nil || h.pod == nil || len(h.pod.OwnerReferences) == 0 || h.pod.OwnerReferences[0].UID != h.shadow.UID {
			return false
		}
		h.pod.OwnerReferences = nil
		return h.deleteShadow(false)
	}},
	{"consumer changes an image", func(h *history) bool {
		if h.shadow == nil {
			return false
		}
		h.serial++
		h.shadow.Spec.Pod.Containers[0].Image = fmt.Sprintf("image:%d", h.serial)
		return true
	}},
	{"unmanaged pod takes the name", func(h *history) bool {
		if h.pod != nil {
			return false
		}
		h.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "remote", UID: h.uid()}}
		return true
	}},
	{"unmanaged pod leaves", func(h *history) bool {
		if h.pod == nil || h.fences[h.pod.UID] != "" {
			return false
		}
		h.pod = nil
		return true
	}},
	{"scheduler", func(h *history) bool {
		if h.pod == nil || h.pod.Spec.NodeName != "" || h.pod.DeletionTimestamp != nil {
			return false
		}
		h.pod.Spec.NodeName = "node"
		return true
	}},
	{"kubelet runs", func(h *history) bool { return h.kubelet(corev1.PodPending, corev1.PodRunning, "") }},
	{"processes succeed", func(h *history) bool {
		if h.pod == nil || h.fence() == "" || h.policy[h.fence()] == corev1.RestartPolicyAlways {
			return false
		}
		return h.kubelet(corev1.PodRunning, corev1.PodSucceeded, "")
	}},
	{"processes fail", func(h *history) bool {
		if h.pod == nil || h.policy[h.fence()] != corev1.RestartPolicyNever {
			return false
		}
		return h.kubelet(corev1.PodRunning, corev1.PodFailed, "")
	}},
	{"kubelet evicts", func(h *history) bool { return h.kubelet(corev1.PodRunning, corev1.PodFailed, "Evicted") }},
	{"deleted", func(h *history) bool { return h.delete(30) }},
	{"deleted by force", func(h *history) bool { return h.delete(0) }},
	{"node lost", func(h *history) bool {
		if h.pod == nil || h.fence() == "" || h.pod.Spec.NodeName == "" || Terminal(h.pod) {
			return false
		}
		h.pod.Status.Phase = corev1.PodFailed
		h.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC"}}
		h.ends()
		h.snapshot()
		return h.delete(0)
	}},
	{"kubelet ends what is deleted", func(h *history) bool {
		if h.pod == nil || h.pod.DeletionTimestamp == nil {
			return false
		}
		if !Terminal(h.pod) && h.pod.Spec.NodeName != "" {
			h.pod.Status.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}[h.random.Intn(2)]
			h.ends()
			h.snapshot()
		}
		h.pod.DeletionGracePeriodSeconds = new(int64(0))
		h.vanish()
		return true
	}},
	{"garbage collector", func(h *history) bool {
		if h.pod == nil || len(h.pod.OwnerReferences) == 0 || h.shadow != nil && h.pod.OwnerReferences[0].UID == h.shadow.UID {
			return false
		}
		return h.delete(30)
	}},
	{foregroundCollector, func(h *history) bool {
		switch {
		case h.shadow == nil || !slices.Contains(h.shadow.Finalizers, metav1.FinalizerDeleteDependents):
			return false
		case h.pod == nil || len(h.pod.OwnerReferences) == 0 || h.pod.OwnerReferences[0].UID != h.shadow.UID:
			h.shadow.Finalizers = slices.DeleteFunc(h.shadow.Finalizers, func(finalizer string) bool { return finalizer == metav1.FinalizerDeleteDependents })
			if len(h.shadow.Finalizers) == 0 {
				h.shadow = nil
			}
			return true
		}
		return h.pod.DeletionTimestamp == nil && h.delete(30)
	}},
	{"time", func(h *history) bool { h.now = h.now.Add(time.Minute); return true }},
	{"clock jumps", func(h *history) bool {
		h.skew = []time.Duration{0, 24 * time.Hour, -24 * time.Hour}[h.random.Intn(3)]
		return true
	}},
}

func (h *history) fence() string { return h.fences[h.pod.UID] }

// deleteShadow deletes the ShadowPod as the API server does.
func (h *history) deleteShadow(foreground bool) bool {
	if h.shadow == nil {
		return false
	}
	if foreground && !slices.Contains(h.shadow.Finalizers, metav1.FinalizerDeleteDependents) {
		h.shadow.Finalizers = append(h.shadow.Finalizers, metav1.FinalizerDeleteDependents)
	}
	if len(h.shadow.Finalizers) == 0 {
		h.shadow = nil
	} else if h.shadow.DeletionTimestamp == nil {
		h.shadow.DeletionTimestamp = &metav1.Time{Time: h.now}
	}
	return true
}

func (h *history) kubelet(from, to corev1.PodPhase, reason string) bool {
	if h.pod == nil || h.pod.Spec.NodeName == "" || h.pod.DeletionTimestamp != nil || h.fence() == "" || h.pod.Status.Phase != from {
		return false
	}
	h.pod.Status.Phase, h.pod.Status.Reason = to, reason
	h.ends()
	return true
}

// ends is the oracle: it records from when on a fence must not run again. A pod that is always restarted has ended only when the controller
// recorded so.
func (h *history) ends() {
	if fence := h.fence(); fence != "" && Terminal(h.pod) {
		phase, deleting := h.pod.Status.Phase, h.pod.DeletionTimestamp != nil
		switch h.policy[fence] {
		case corev1.RestartPolicyNever:
			h.over[fence] = "never restarted, and ended"
		case corev1.RestartPolicyOnFailure:
			if phase == corev1.PodSucceeded || !deleting && len(h.pod.Status.Conditions) == 0 {
				h.over[fence] = "ended " + string(phase)
			}
		}
	}
}

func (h *history) delete(grace int64) bool {
	if h.pod == nil || h.fence() == "" {
		return false
	}
	if Terminal(h.pod) || h.pod.Spec.NodeName == "" {
		grace = 0
	}
	if h.pod.DeletionTimestamp == nil || grace < *h.pod.DeletionGracePeriodSeconds {
		h.pod.DeletionTimestamp, h.pod.DeletionGracePeriodSeconds = &metav1.Time{Time: h.now}, &grace
	}
	if grace == 0 {
		h.vanish()
	}
	return true
}

func (h *history) vanish() {
	if len(h.pod.Finalizers) == 0 {
		h.pod = nil
	}
}

// others lets up to most random actors act.
func (h *history) others(most int) {
	for range h.random.Intn(most + 1) {
		actor := actors[h.random.Intn(len(actors))]
		if actor.act(h) {
			h.note("  %s", actor.name)
			h.snapshot()
		}
	}
}

// controller runs one reconciliation, with other actors in between.
func (h *history) controller(disturb int) (acted bool) {
	facts := Facts{Shadow: h.shadows[h.seenS].DeepCopy(), Pod: trimmedPod(h.pods[h.seenP]), Now: h.now.Add(h.skew)}
	if facts.Shadow != nil {
		shadow.Trim(facts.Shadow)
	}
	step := Plan(facts)
	h.ignoresPhase(facts, step)
	if step.NeedsPod {
		h.others(disturb)
		facts.Pod, facts.PodLive = h.pod.DeepCopy(), true
		step = Plan(facts)
		h.ignoresPhase(facts, step)
		if step.NeedsPod {
			h.fail("it asks for the pod although it has it")
		}
	}
	if step.NeedsLive {
		h.others(disturb)
		var pod *corev1.Pod
		if facts.Pod != nil {
			pod = h.pod.DeepCopy()
		}
		h.others(disturb)
		facts = Facts{Shadow: h.shadow.DeepCopy(), Pod: pod, Live: true, Now: h.now.Add(h.skew)}
		step = Plan(facts)
		h.ignoresPhase(facts, step)
		if step.NeedsLive {
			h.fail("it asks for live facts although the facts are live")
		}
	}
	h.note("controller: %+v", step)
	h.others(disturb)
	if step.Create {
		if h.pod != nil {
			return false // AlreadyExists
		}
		if why := h.over[facts.Shadow.Spec.Fence]; why != "" {
			h.fail("created again a pod that has ended: %s %s", facts.Shadow.Spec.Fence, why)
		}
		h.pod = shadow.Pod(facts.Shadow, "rome-id", everyKey)
		h.pod.UID, h.pod.Status.Phase, h.pod.CreationTimestamp = h.uid(), corev1.PodPending, metav1.NewTime(h.now)
		h.fences[h.pod.UID] = facts.Shadow.Spec.Fence
		h.created[facts.Shadow.Spec.Fence]++
		h.snapshot()
		return true
	}
	if step.Free && h.shadow != nil && h.shadow.UID == facts.Shadow.UID && len(h.shadow.Finalizers) > 0 {
		if h.pod != nil && h.fence() == h.shadow.Spec.Fence {
			h.fail("the name is free, but its pod exists")
		}
		h.shadow = nil
		h.freed++
		h.snapshot()
		return true
	}
	if facts.Pod == nil || step.Unmanaged {
		return false
	}
	same := func() bool { return h.pod != nil && h.pod.UID == facts.Pod.UID }
	if (step.Delete || step.Release || step.Amend || step.Phase != "") && h.fences[facts.Pod.UID] == "" {
		h.fail("changed an unmanaged pod: %+v", step)
	}
	if step.Delete && same() {
		if h.shadow != nil && h.shadow.DeletionTimestamp == nil && h.fence() == h.shadow.Spec.Fence {
			h.fail("deleted the pod of a ShadowPod that exists")
		}
		h.delete(30)
	}
	if step.Phase != "" && h.shadow != nil && h.shadow.UID == facts.Shadow.UID && !finished(h.shadow.Status.Phase) {
		h.shadow.Status.Phase, h.shadow.Status.PodUID = step.Phase, string(facts.Pod.UID)
		if finished(step.Phase) {
			h.over[h.shadow.Spec.Fence] = "was recorded as ended"
		}
		h.snapshot()
	}
	h.others(disturb)
	if h.random.Intn(10) == 0 && disturb > 0 {
		h.note("killed")
		return true
	}
	if step.Release && same() && (!facts.Live || reflect.DeepEqual(h.pod, facts.Pod)) {
		h.pod.Finalizers = nil
		if h.pod.DeletionTimestamp != nil && *h.pod.DeletionGracePeriodSeconds == 0 {
			h.vanish()
		}
	}
	if step.Amend && same() && h.shadow != nil && h.shadow.UID == facts.Shadow.UID {
		h.pod.Annotations = map[string]string{labels.ShadowPodRevision: shadow.Revision(h.shadow)}
	}
	h.snapshot()
	return step.Delete || step.Phase != "" || step.Release || step.Amend
}

// ignoresPhase checks that a recorded phase that is not terminal decides nothing but what is recorded, and when.
func (h *history) ignoresPhase(facts Facts, step Step) {
	if facts.Shadow == nil || finished(facts.Shadow.Status.Phase) {
		return
	}
	decision := func(step Step) Step {
		if !finished(step.Phase) {
			step.Phase = ""
		}
		step.RequeueAfter = 0
		return step
	}
	for _, phase := range []vkv1alpha1.ShadowPodPhase{"", vkv1alpha1.ShadowPodPending, vkv1alpha1.ShadowPodRunning, vkv1alpha1.ShadowPodUnknown} {
		changed := facts
		changed.Shadow = facts.Shadow.DeepCopy()
		changed.Shadow.Status = vkv1alpha1.ShadowPodStatus{Phase: phase}
		if other := decision(Plan(changed)); other != decision(step) {
			h.fail("the recorded phase %q decides: %+v, want %+v", phase, other, decision(step))
		}
	}
}

// trimmedPod is what the cache of the controller manager keeps of a pod.
func trimmedPod(pod *corev1.Pod) *corev1.Pod {
	if pod == nil {
		return nil
	}
	kept := pod.DeepCopy()
	for _, all := range []map[string]string{kept.Labels, kept.Annotations} {
		maps.DeleteFunc(all, func(key, _ string) bool { return !strings.Contains(key, "liqo.io/") })
	}
	kept.Spec, kept.Status = corev1.PodSpec{NodeName: pod.Spec.NodeName}, corev1.PodStatus{Phase: pod.Status.Phase}
	return kept
}

// TestRandomHistories: for any order of events and any age of the snapshots that a controller reads, no fence runs again after it has ended,
// no unmanaged pod is touched, and no name is free before its pod is gone; when the actors stop, the pod of the ShadowPod runs, or both are gone.
func TestRandomHistories(t *testing.T) {
	single.Goroutine(t)
	made, again, freed := 0, 0, 0
	for seed := range int64(2000) {
		h := &history{
			t: t, random: rand.New(rand.NewSource(seed)), now: time.Unix(1_700_000_000, 0),
			over: map[string]string{}, fences: map[types.UID]string{}, created: map[string]int{}, policy: map[string]corev1.RestartPolicy{},
		}
		h.note("seed %d", seed)
		h.snapshot()
		for range 60 {
			h.others(3)
			last := len(h.shadows) - 1
			switch h.random.Intn(4) {
			case 0: // restarted: it lists from an API server whose cache may be behind
				h.seenS, h.seenP = max(0, last-h.random.Intn(8)), max(0, last-h.random.Intn(8))
			default: // the watches go on, each kind at its own speed
				h.seenS, h.seenP = h.seenS+h.random.Intn(last-h.seenS+1), h.seenP+h.random.Intn(last-h.seenP+1)
			}
			h.controller(2)
		}
		h.settle()
		freed += h.freed
		for _, count := range h.created {
			made++
			again += count - 1
		}
	}
	if made < 1000 || again < 300 || freed < 300 {
		t.Errorf("%d pods created, %d of them again, %d names freed: too few to prove anything", made, again, freed)
	}
	t.Logf("%d pods created, %d of them again, %d names freed", made, again, freed)
}

// settle sets the clock right, lets the caches catch up and the kubelets and the garbage collector finish, and starts nothing new.
func (h *history) settle() {
	finish := []string{"garbage collector", "kubelet ends what is deleted", "unmanaged pod leaves", "scheduler", "kubelet runs", "time"}
	h.skew = 0
	for range 40 {
		for _, actor := range actors {
			if slices.Contains(finish, actor.name) && actor.act(h) {
				h.snapshot()
			}
		}
		h.seenS, h.seenP = len(h.shadows)-1, len(h.pods)-1
		h.controller(0)
	}
	h.seenS, h.seenP = len(h.shadows)-1, len(h.pods)-1
	if h.controller(0) {
		h.fail("it does not converge")
	}
	switch {
	case h.shadow == nil:
		if h.pod != nil {
			h.fail("a pod without a ShadowPod is left")
		}
	case h.shadow.DeletionTimestamp != nil:
		h.fail("the name is not free")
	case finished(h.shadow.Status.Phase):
	case h.pod == nil || h.fence() != h.shadow.Spec.Fence || h.pod.Status.Phase != corev1.PodRunning || h.shadow.Status.Phase != vkv1alpha1.ShadowPodRunning:
		h.fail("the pod of the ShadowPod does not run: %+v, %+v", h.shadow.Status, h.pod)
	}
}

// everyKey is for tests of other rules than the lists of keys.
var everyKey = metadata.Allowed{Labels: metadata.Keys{"*"}, Annotations: metadata.Keys{"*"}, Tolerations: metadata.Keys{"*"}}

func planned(change func(*vkv1alpha1.ShadowPod)) *vkv1alpha1.ShadowPod {
	s := &vkv1alpha1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "remote", Name: "web", UID: "shadow", Labels: map[string]string{labels.Origin: "rome-id", "app": "web"},
		},
		Spec: vkv1alpha1.ShadowPodSpec{Fence: "fence", Pod: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

// TestFree: what keeps a ShadowPod is removed by its place and nothing else is.
func TestFree(t *testing.T) {
	const theirs = "example.com/theirs"
	for _, c := range []struct{ before, after []string }{
		{nil, nil},
		{[]string{theirs}, []string{theirs}},
		{[]string{labels.FinalizerPodGone}, []string{}},
		{[]string{metav1.FinalizerDeleteDependents}, []string{}},
		{[]string{labels.FinalizerPodGone, theirs, metav1.FinalizerDeleteDependents}, []string{theirs}},
		{[]string{theirs, metav1.FinalizerDeleteDependents, labels.FinalizerPodGone, labels.FinalizerPodGone}, []string{theirs}},
	} {
		s := planned(func(s *vkv1alpha1.ShadowPod) { s.Finalizers = c.before })
		ops := Free(s)
		if slices.Equal(c.before, c.after) {
			if ops != nil {
				t.Errorf("%v: %v", c.before, ops)
			}
			continue
		}
		after := slices.Clone(c.before)
		for _, op := range ops {
			place, ok := strings.CutPrefix(op.Path, "/metadata/finalizers/")
			if !ok {
				if op != (shadow.Op{Op: "test", Path: "/metadata/uid", Value: string(s.UID)}) {
					t.Errorf("%v: %+v", c.before, op)
				}
				continue
			}
			at, err := strconv.Atoi(place)
			switch {
			case err != nil || at >= len(after):
				t.Fatalf("%v: no place for %+v in %v", c.before, op, after)
			case op.Op == "test" && op.Value != after[at]:
				t.Errorf("%v: %+v would fail on %v", c.before, op, after)
			case op.Op == "remove":
				after = slices.Delete(after, at, at+1)
			}
		}
		if !slices.Equal(after, c.after) {
			t.Errorf("%v: %v, want %v", c.before, after, c.after)
		}
	}
}

// TestPlan: single steps, by name.
func TestPlan(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := planned(nil)
	is := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := shadow.Pod(s, "rome-id", everyKey)
		pod.UID, pod.CreationTimestamp, pod.Status.Phase, pod.Spec.NodeName = "pod", metav1.NewTime(now), corev1.PodRunning, "node"
		if change != nil {
			change(pod)
		}
		return pod
	}
	deleted := func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, new(int64(30))
	}
	phase := func(phase vkv1alpha1.ShadowPodPhase) *vkv1alpha1.ShadowPod {
		return planned(func(s *vkv1alpha1.ShadowPod) { s.Status.Phase, s.Status.PodUID = phase, "pod" })
	}
	goes := planned(func(s *vkv1alpha1.ShadowPod) {
		s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: now}, []string{"example.com/theirs", metav1.FinalizerDeleteDependents}
	})
	ours := planned(func(s *vkv1alpha1.ShadowPod) {
		s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: now}, []string{labels.FinalizerPodGone}
	})
	periodOf := func(s *vkv1alpha1.ShadowPod, period string) *vkv1alpha1.ShadowPod {
		s = s.DeepCopy()
		s.Annotations = map[string]string{labels.DeletionPeriod: period}
		return s
	}
	endsIn := func(seconds int64) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, &seconds
		}
	}
	unmanaged := func(p *corev1.Pod) { p.OwnerReferences, p.Labels, p.Annotations = nil, nil, nil }
	never := planned(func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.RestartPolicy = corev1.RestartPolicyNever })
	retried := planned(func(s *vkv1alpha1.ShadowPod) { s.Spec.Pod.RestartPolicy = corev1.RestartPolicyOnFailure })
	forced := func(ago time.Duration, phase corev1.PodPhase) *corev1.Pod {
		return is(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(-ago)}, new(int64(0))
			p.Status.Phase, p.Finalizers = phase, []string{labels.FinalizerPodEnd}
		})
	}
	other := planned(func(s *vkv1alpha1.ShadowPod) { s.UID = "next" })
	for _, c := range []struct {
		name   string
		shadow *vkv1alpha1.ShadowPod
		pod    *corev1.Pod
		live   bool
		want   Step
		look   bool // the pod was read live
	}{
		{"nothing", nil, nil, false, Step{}, false},
		{"new, from the cache", s, nil, false, Step{NeedsLive: true}, false},
		{"new, live", s, nil, true, Step{Create: true}, false},
		{"vanished while it ran", phase(vkv1alpha1.ShadowPodRunning), nil, true, Step{Create: true}, false},
		{"vanished when it had succeeded", phase(vkv1alpha1.ShadowPodSucceeded), nil, true, Step{}, false},
		{"vanished when it had failed", phase(vkv1alpha1.ShadowPodFailed), nil, true, Step{}, false},
		{"vanished while the ShadowPod is deleted", planned(func(s *vkv1alpha1.ShadowPod) { s.DeletionTimestamp = &metav1.Time{} }), nil, true, Step{}, false},
		{"running for a short time", s, is(nil), false, Step{RequeueAfter: runningDelay}, false},
		{
			"running for a short time, and our clock is wrong", s,
			is(func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(time.Hour)) }), false,
			Step{RequeueAfter: runningDelay},
			false,
		},
		{"running for long", s, is(func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-runningDelay)) }), false, Step{Phase: "Running"}, false},
		{"running, and pending is recorded", phase(vkv1alpha1.ShadowPodPending), is(nil), false, Step{Phase: "Running"}, false},
		{"running, recorded", phase(vkv1alpha1.ShadowPodRunning), is(nil), false, Step{}, false},
		{"pending for a short time", s, is(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), false, Step{RequeueAfter: pendingDelay}, false},
		{"pending for long", s, is(func(p *corev1.Pod) {
			p.Status.Phase, p.CreationTimestamp = corev1.PodPending, metav1.NewTime(now.Add(-time.Minute))
		}), false, Step{Phase: "Pending"}, false},
		{"unmanaged", s, is(unmanaged), false, Step{Unmanaged: true}, false},
		{"of another controller", s, is(func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }), true, Step{Unmanaged: true}, false},
		{"unmanaged, without a ShadowPod", nil, is(func(p *corev1.Pod) { p.OwnerReferences, p.Labels = nil, nil }), true, Step{}, false},
		{"of the earlier ShadowPod, from the cache", other, is(nil), false, Step{NeedsLive: true}, false},
		{"of the earlier ShadowPod, live", other, is(nil), true, Step{Delete: true}, false},
		{"of the earlier ShadowPod, being deleted", other, is(deleted), true, Step{}, false},
		{"its ShadowPod is gone: the garbage collector deletes it", nil, is(nil), true, Step{}, false},
		{"its ShadowPod is gone, and its owner reference too", nil, is(func(p *corev1.Pod) { p.OwnerReferences = nil }), true, Step{Delete: true}, false},
		{"evicted", s, is(func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }), true, Step{Phase: "Failed"}, false},
		{"a terminal phase, from the cache", s, is(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), false, Step{NeedsLive: true}, false},
		{"deleted, so its processes end", s, is(func(p *corev1.Pod) { deleted(p); p.Status.Phase = corev1.PodSucceeded }), true, Step{}, false},
		{"deleted, but never to be restarted", never, is(func(p *corev1.Pod) {
			deleted(p)
			p.Status.Phase, p.Finalizers = corev1.PodFailed, []string{labels.FinalizerPodEnd}
		}), false, Step{Phase: "Failed", Release: true}, false},
		{"deleted by force, just now", retried, forced(0, corev1.PodRunning), false, Step{RequeueAfter: kubeletDelay}, false},
		{"deleted by force, long ago, from the cache", retried, forced(kubeletDelay, corev1.PodRunning), false, Step{NeedsLive: true}, false},
		{"deleted by force, long ago, without a report", retried, forced(kubeletDelay, corev1.PodRunning), true, Step{Release: true}, false},
		{"deleted by force, and it had succeeded", retried, forced(kubeletDelay, corev1.PodSucceeded), true, Step{Phase: "Succeeded", Release: true}, false},
		{"its label is gone: amend", phase(vkv1alpha1.ShadowPodRunning), is(func(p *corev1.Pod) { p.Annotations = nil }), false, Step{Amend: true}, false},
		{"its end is recorded, and its label is gone: a pod that has ended stays as it is", phase(vkv1alpha1.ShadowPodSucceeded), is(func(p *corev1.Pod) {
			p.Status.Phase, p.Annotations = corev1.PodSucceeded, nil
		}), false, Step{}, false},
		{"deleted with the shortest period: its kubelet reports its end", planned(func(s *vkv1alpha1.ShadowPod) {
			s.Status.Phase, s.Status.PodUID, s.Spec.Pod.RestartPolicy = vkv1alpha1.ShadowPodRunning, "pod", corev1.RestartPolicyOnFailure
		}), is(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(-kubeletDelay)}, new(int64(1))
			p.Finalizers = []string{labels.FinalizerPodEnd}
		}), true, Step{}, false},
		{"running for a short time, after an earlier pod", planned(func(s *vkv1alpha1.ShadowPod) {
			s.Status.Phase, s.Status.PodUID = vkv1alpha1.ShadowPodRunning, "before"
		}), is(nil), false, Step{RequeueAfter: runningDelay}, false},
		{"in deletion, its pod runs", goes, is(nil), false, Step{Delete: true}, false},
		{"in deletion, its pod runs without an owner reference", goes, is(func(p *corev1.Pod) { p.OwnerReferences = nil }), false, Step{Delete: true}, false},
		{"in deletion, with a period", periodOf(goes, "3"), is(nil), false, Step{Delete: true, Period: 3}, false},
		{"in deletion, with a period that is none", periodOf(goes, "0"), is(nil), false, Step{Delete: true, Period: 1}, false},
		{"in deletion, with a negative period", periodOf(goes, "-3"), is(nil), false, Step{Delete: true}, false},
		{"in deletion, with a period that is no number", periodOf(goes, "3s"), is(nil), false, Step{Delete: true}, false},
		{"in deletion, and its manifest has no period", planned(func(s *vkv1alpha1.ShadowPod) {
			*s = *goes.DeepCopy()
			s.Spec.Pod.TerminationGracePeriodSeconds = new(int64(0))
		}), is(nil), false, Step{Delete: true, Period: 1}, false},
		{"its period was shortened", periodOf(goes, "3"), is(endsIn(600)), false, Step{Delete: true, Period: 3}, false},
		{"its period is longer than that of its pod, which ends", periodOf(goes, "600"), is(endsIn(3)), false, Step{}, false},
		{"its period is that of its pod, which ends", periodOf(goes, "3"), is(endsIn(3)), false, Step{}, false},
		{"with a period, and not in deletion", periodOf(phase(vkv1alpha1.ShadowPodRunning), "3"), is(nil), false, Step{}, false},
		{"in deletion in the background, held by us, its pod runs", ours, is(nil), false, Step{Delete: true}, false},
		{"in deletion in the background, held by us, like its pod", ours, is(deleted), false, Step{}, false},
		{"in deletion in the background, held by us, no pod in the cache", ours, nil, false, Step{NeedsPod: true}, false},
		{"in deletion in the background, held by us, no pod", ours, nil, false, Step{Free: true}, true},
		{"in deletion in the background, held by us, an unmanaged pod", ours, is(unmanaged), false, Step{Free: true}, true},
		{
			"held by us, not in deletion, its pod was deleted",
			planned(func(s *vkv1alpha1.ShadowPod) { s.Finalizers = []string{labels.FinalizerPodGone} }), nil, true,
			Step{Create: true},
			false,
		},
		{"in deletion like its pod", goes, is(deleted), false, Step{}, false},
		{
			"in deletion like its pod, which we hold", goes,
			is(func(p *corev1.Pod) { deleted(p); p.Finalizers = []string{labels.FinalizerPodEnd} }), false,
			Step{Release: true},
			false,
		},
		{"in deletion, and has ended, but its pod is there", planned(func(s *vkv1alpha1.ShadowPod) {
			*s = *goes.DeepCopy()
			s.Status.Phase = vkv1alpha1.ShadowPodSucceeded
		}), is(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), false, Step{Delete: true}, false},
		{"in deletion, no pod in the cache", goes, nil, false, Step{NeedsPod: true}, false},
		{"in deletion, no pod, all live: the pod was read first", goes, nil, true, Step{NeedsPod: true}, false},
		{"in deletion, no pod", goes, nil, false, Step{Free: true}, true},
		{"in deletion, a pod that the cache did not have", goes, is(nil), false, Step{Delete: true}, true},
		{"in deletion, an unmanaged pod in the cache", goes, is(unmanaged), false, Step{NeedsPod: true}, false},
		{"in deletion, an unmanaged pod", goes, is(unmanaged), false, Step{Free: true}, true},
		{"in deletion, the pod of an earlier ShadowPod", goes, is(func(p *corev1.Pod) { p.OwnerReferences[0].UID = "before" }), true, Step{Delete: true}, false},
		{"in deletion, the garbage collector has freed it, another finalizer holds it", planned(func(s *vkv1alpha1.ShadowPod) {
			s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: now}, []string{"example.com/theirs"}
		}), nil, false, Step{}, false},
		{"in deletion, in the background, held by another finalizer: its pod runs until it is gone", planned(func(s *vkv1alpha1.ShadowPod) {
			s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: now}, []string{"example.com/theirs"}
		}), is(nil), false, Step{}, false},
	} {
		if got := Plan(Facts{Shadow: c.shadow, Pod: c.pod, Live: c.live, PodLive: c.look, Now: now}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestRelease: only our finalizer is removed, and from a pod that was read live only as it was read.
func TestRelease(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod"}}
	if fmt.Sprint(Release(Facts{Pod: pod, Live: true})) != "[]" {
		t.Error("a finalizer that is not there")
	}
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod", ResourceVersion: "7", Finalizers: []string{labels.FinalizerPodEnd}}}
	version := shadow.Op{Op: "test", Path: "/metadata/resourceVersion", Value: "7"}
	if live, cached := Release(Facts{Pod: kept, Live: true}), Release(Facts{Pod: kept}); !slices.Contains(live, version) || slices.Contains(cached, version) {
		t.Errorf("released as read live %v, from a cache %v", live, cached)
	}
}
