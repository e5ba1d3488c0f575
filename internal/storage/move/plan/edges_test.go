// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
	"liqo.io/liqo/internal/storage/move/report"
)

func noClaim(f *Facts)       { f.Claim = nil }
func noTargetClaim(f *Facts) { f.Target = nil }
func noTargetVol(f *Facts)   { f.TargetVolume = nil }
func noSourceClaim(f *Facts) { f.Source = nil }
func noRecord(f *Facts)      { f.SourceVolume = nil }
func keepSource(f *Facts)    { f.Move.Spec.KeepSource = true }
func notHeld(f *Facts)       { f.Move.Finalizers = nil }
func cancelled(f *Facts)     { leaving(f.Move) }
func notReady(f *Facts)      { f.Server.Status.Conditions = nil }
func targetGoes(f *Facts)    { leaving(f.Target) }
func sourceGoes(f *Facts)    { leaving(f.Source) }
func recordGoes(f *Facts)    { leaving(f.SourceVolume) }

// inThisCluster is a target that is no volume of a provider.
func inThisCluster(f *Facts) { f.TargetVolume.Labels, f.TargetVolume.Annotations = nil, nil }

// realOf is the claim that holds the data of the target in the storage namespace.
func realOf(claim string) change {
	return func(f *Facts) {
		f.Real = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "real", Labels: map[string]string{labels.VirtualClaimName: claim}}}
	}
}

// aProbe is one that the scheduler has neither placed nor refused, unless it has a condition.
func aProbe(node string, age time.Duration, conditions ...corev1.PodCondition) change {
	return func(f *Facts) {
		probed(node, age)(f)
		f.Probe.Status.Conditions = conditions
	}
}

func passGoes(f *Facts) {
	aPass(corev1.PodRunning, "")(f)
	leaving(&f.Copies[0])
}

const (
	dropTarget  = "delete PersistentVolumeClaim liqo-move-01234567-target"
	dropSource  = "delete PersistentVolumeClaim liqo-move-01234567-source"
	oldIsToGo   = "policy PersistentVolume liqo-move-01234567-89ab (Delete, data pvc-claim)"
	giveTarget  = "policy PersistentVolume pvc-target (Retain, data pvc-target)"
	lateProbe   = "wait: waiting until the scheduler knows the new place of the volume"
	noLongIn    = "then Completed: ; the old copy is deleted as soon as this cluster answers"
	stillInPeer = "then Failed: ; the copy in liqo-milan is being deleted"
)

// edges are situations that differ from others in one fact only, which decides.
var edges = map[v1alpha1.MovePhase][]step{
	"": {
		{"not held", "hold VolumeMove data", []change{notHeld}},
		{"cancelled at once", "then Failed: cancelled", []change{cancelled}},
		{"cancelled and not held", "wait", []change{cancelled, notHeld}},
	},
	v1alpha1.MoveCompleted: {{"held", "release VolumeMove data", nil}, {"not held", "wait", []change{notHeld}}},
	v1alpha1.MoveFailed:    {{"held", "release VolumeMove data", nil}, {"not held", "wait", []change{notHeld}}},
	v1alpha1.MovePreparing: {
		{"a pod receives, and the volume is gone", "wait: waiting for a volume in liqo-milan: claim liqo-move-01234567-target", []change{noTargetVol}},
	},
	v1alpha1.MoveMeasuring: {
		{
			"a pod that counts needs no way to the target", "wait: pass 1 runs in pod liqo-move-01234567-copy-0",
			[]change{noTarget, noSource, aPass(corev1.PodRunning, ""), func(f *Facts) { f.Admitted = "" }},
		},
	},
	v1alpha1.MoveCopying: {
		{
			"a pass runs, and the target is not ready now", "wait: pass 1 runs in pod liqo-move-01234567-copy-0",
			[]change{aPass(corev1.PodRunning, ""), notReady},
		},
		{
			"a pass has no address yet", "wait: waiting for pod liqo-move-01234567-copy-0: pod liqo-move-01234567-copy-0 is Pending",
			[]change{aPass(corev1.PodPending, ""), func(f *Facts) { f.Copies[0].Status.PodIP = "" }},
		},
		{
			"a pass reports in lines why it failed", "wait: a pod failed and is started again: one; two; three",
			[]change{aPass(corev1.PodFailed, "one\ntwo\rthree\n")},
		},
		{"a pass goes", "create Pod liqo-move-01234567-copy-0", []change{passGoes}},
	},
	v1alpha1.MoveStopping: {
		{"the target is gone", "then Restoring: claim liqo-move-01234567-target was deleted", []change{noTargetClaim}},
		{
			"nothing protects the volume", "fence PersistentVolume pvc-claim (Retain, data pvc-claim)",
			[]change{keptVolume, func(f *Facts) { f.Volume.Finalizers = nil }},
		},
	},
	v1alpha1.MoveFinishing: {
		{"the claim of the source is gone", "then Restoring: claim liqo-move-01234567-source was deleted", []change{noSourceClaim}},
		{"the claim of the target goes", "then Restoring: claim liqo-move-01234567-target was deleted", []change{targetGoes}},
		{"the second record goes", "then Restoring: volume liqo-move-01234567-89ab was deleted", []change{recordGoes}},
		{"the volume of the target is gone", "then Restoring: the volume of claim liqo-move-01234567-target was deleted", []change{noTargetVol}},
	},
	v1alpha1.MoveSwitching: {
		{"the target is in this cluster", "policy PersistentVolume pvc-target (Retain, data pvc-target)", []change{inThisCluster}},
		{"the target is kept, but not handed over", giveTarget, []change{kept}},
		{"it was handed over, and its user has changed the policy", giveTarget, []change{handedOver, func(f *Facts) {
			f.TargetVolume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}}},
		{"cancelled when it had started there", giveTarget, []change{cancelled, func(f *Facts) { f.Move.Status.StartedAt = f.Move.Status.PhaseSince }}},
		{
			"the claim is deleted, and the scheduler need not know", "then Removing: the data is in liqo-milan",
			[]change{newData, affine, func(f *Facts) { leaving(f.Claim) }},
		},
		{"other data came", "policy PersistentVolume pvc-claim (Retain, data pvc-other)", []change{otherData}},
		{"other data came, and a pod uses it", "policy PersistentVolume pvc-claim (Retain, data pvc-other)", []change{otherData, aUser("worker")}},
		{
			"the target is gone, and the old data is back", "then Restoring: the volume of claim liqo-move-01234567-target was deleted",
			[]change{back, noTargetVol},
		},
		{"the last moment to ask the scheduler", "create Pod liqo-move-01234567-probe", []change{newData, affine, after(gone)}},
		{"the scheduler has not looked at the probe", lateProbe, []change{newData, affine, aProbe("", 2*probeAgain)}},
		{"a placed probe goes", lateProbe, []change{newData, affine, probed("worker", 2*probeAgain), func(f *Facts) { leaving(f.Probe) }}},
		{"a placed probe is as old as it may be", lateProbe, []change{newData, affine, probed("worker", probeAgain)}},
		{"it was placed after it was refused", lateProbe, []change{newData, affine, aProbe("worker", 0, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		})}},
		{"the scheduler failed", lateProbe, []change{newData, affine, aProbe("", 0, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulerError,
		})}},
		{"it is scheduled", lateProbe, []change{newData, affine, aProbe("", 0, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: corev1.PodReasonUnschedulable,
		})}},
		{"another condition", lateProbe, []change{newData, affine, aProbe("", 0, corev1.PodCondition{
			Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		})}},
	},
	v1alpha1.MoveRemoving: {
		{"the claim that holds the data names another one", "relabel PersistentVolumeClaim real", []change{realOf("other")}},
		{"it names the user's", giveTarget, []change{realOf("data")}},
		{"it names another one, and the user has deleted the claim", "wait", []change{realOf("other"), noClaim}},
		{"it names another one, and the target is gone", oldIsToGo, []change{realOf("other"), noTarget}},
		{"the record of the source is gone", dropSource, []change{noTarget, noRecord}},
		{"the record of the source is gone, and its claim goes", "wait", []change{noTarget, noRecord, sourceGoes}},
		{"only the record of the source is left", "wait", []change{noTarget, noSourceClaim}},
		{"only the record of the source is left, for long", noLongIn, []change{noTarget, noSourceClaim, cleared, after(gone)}},
		{"the source is to be kept, and is gone", "then Completed", []change{noTarget, noSource, cleared, keepSource}},
		{
			"the user has deleted the claim, and the data is to stay", giveTarget,
			[]change{noVolume, noClaim, func(f *Facts) { f.SourceVolume.Annotations[labels.ReclaimPolicy] = "Retain" }},
		},
		{"the user has deleted the claim, and the target's volume is gone", dropTarget, []change{noVolume, noClaim, noTargetVol}},
		{"the user has deleted the claim, and its volume stays", "wait", []change{noClaim}},
		{"for long", oldIsToGo, []change{noClaim, after(gone)}},
		{"the user has deleted the claim, and the target's is gone", "wait", []change{noVolume, noClaim, noTargetClaim}},
		{"the user has deleted the claim, and the target's goes", "wait", []change{noVolume, noClaim, targetGoes}},
		{"the target's goes for long", oldIsToGo, []change{noVolume, noClaim, targetGoes, after(gone)}},
		{
			"the policy is gone, the Service is not",
			"delete Secret liqo-move-01234567-source; delete Secret liqo-move-01234567-target; delete Service liqo-move-01234567",
			[]change{noTarget, noSource, func(f *Facts) { f.Fenced = false }},
		},
	},
	v1alpha1.MoveRestoring: {
		{"the user has deleted the claim, and another volume has its name", dropTarget, []change{otherData, noClaim}},
		{"the user has deleted the claim, and the volume goes", dropTarget, []change{back, noClaim, func(f *Facts) { leaving(f.Volume) }}},
		{
			"the user has deleted the claim, and the volume goes with another policy", dropTarget,
			[]change{back, noClaim, keptVolume, func(f *Facts) { leaving(f.Volume) }},
		},
		{"the user has deleted the claim, and the volume is there", dropTarget, []change{back, noClaim}},
		{"the volume is back, and a pass goes for long", dropTarget, []change{back, passGoes, after(gone)}},
		{"there is no record, and a pass goes", "wait", []change{noRecord, passGoes}},
		{"the user has deleted the claim, and a pass goes for long", dropTarget, []change{noClaim, passGoes, after(gone)}},
		{"neither volume nor record", dropTarget, []change{noRecord}},
		{"the target's volume is gone", dropTarget, []change{back, noTargetVol}},
		{"the target's claim is gone, and its volume is kept", "wait", []change{back, kept, noTargetClaim}},
		{"the target's claim goes, and its volume is gone", "wait", []change{back, noTargetVol, targetGoes}},
		{"the target's claim goes, for long, all else is gone", stillInPeer, []change{back, noSource, cleared, noTargetVol, targetGoes, after(gone)}},
		{"the target's volume is there, for long, all else is gone", stillInPeer, []change{back, noSource, cleared, noTargetClaim, after(gone)}},
		{"the user has deleted the claim, and there is no record", dropSource, []change{noTarget, noRecord, noClaim}},
		{
			"the record would take the data with it", "policy PersistentVolume liqo-move-01234567-89ab (Retain, data pvc-claim)",
			[]change{back, noTarget, oldGoes},
		},
		{"the user has deleted the claim, and the source's is gone", objectsGo, []change{noTarget, noClaim, noSourceClaim, oldGoes}},
		{"only the record is left, and goes", "wait", []change{back, noTarget, noSourceClaim, recordGoes}},
		{"only the claim of the source is left, and goes", "wait", []change{back, noTarget, noRecord, sourceGoes}},
		{"both go for long", objectsGo, []change{back, noTarget, sourceGoes, recordGoes, after(gone)}},
	},
}

// TestTimes: a move records when its pods stopped and when they could start again; a dry run, which stops none, records neither.
func TestTimes(t *testing.T) {
	f := during(v1alpha1.MoveSwitching)
	newData(f)
	f.Move.Status.StoppedAt = f.Move.Status.PhaseSince
	after(time.Minute)(f)
	if s := Plan(*f).Status; s.StartedAt == nil || !s.StartedAt.Time.Equal(f.Now) {
		t.Errorf("it was switched at %v: %+v", f.Now, s)
	}
	f = during(v1alpha1.MoveMeasuring)
	aPass(corev1.PodSucceeded, unverifiedPass)(f)
	if s := Plan(*f).Status; s.Phase != v1alpha1.MoveRemoving || s.StartedAt != nil {
		t.Errorf("a dry run: %+v", s)
	}
}

// TestWaiting: why a pod does not run is what its container waits for, else what the scheduler reports, else its phase.
func TestWaiting(t *testing.T) {
	waits := func(reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	scheduled := func(kind corev1.PodConditionType, status corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: kind, Status: status, Message: "no node fits"}}
	}
	for want, status := range map[string]corev1.PodStatus{
		"ErrImagePull: not found": {ContainerStatuses: []corev1.ContainerStatus{{}, waits("", "x"), waits("ErrImagePull", "not found")}},
		"ContainerCreating":       {ContainerStatuses: []corev1.ContainerStatus{waits("ContainerCreating", "")}},
		"no node fits":            {Phase: corev1.PodPending, Conditions: scheduled(corev1.PodScheduled, corev1.ConditionFalse)},
		"pod server is Pending":   {Phase: corev1.PodPending, Conditions: scheduled(corev1.PodScheduled, corev1.ConditionTrue)},
		"pod server is Running":   {Phase: corev1.PodRunning, Conditions: scheduled(corev1.PodReady, corev1.ConditionFalse)},
		"pod server is new":       {},
	} {
		if got := report.Waiting(aPod("server", func(p *corev1.Pod) { p.Status = status })); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestIsReady: by the condition Ready alone, and not while it goes.
func TestIsReady(t *testing.T) {
	for name, row := range map[string]struct {
		kind   corev1.PodConditionType
		status corev1.ConditionStatus
		want   bool
	}{
		"ready":          {corev1.PodReady, corev1.ConditionTrue, true},
		"not ready":      {corev1.PodReady, corev1.ConditionFalse, false},
		"only scheduled": {corev1.PodScheduled, corev1.ConditionTrue, false},
	} {
		pod := aPod("server", func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: row.kind, Status: row.status}} })
		if got := report.Ready(pod); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
		if leaving(pod); report.Ready(pod) {
			t.Errorf("%s, and it goes: ready", name)
		}
	}
}

// TestNames: five names, then how many more.
func TestNames(t *testing.T) {
	var pods []corev1.Pod
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		pods = append(pods, *aPod(name, func(*corev1.Pod) {}))
	}
	for n, want := range map[int]string{1: "a", 5: "a, b, c, d, e", 6: "a, b, c, d, e, and 1 more"} {
		if got := names(pods[:n]); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// TestNamedFor: the claim that holds the data names the user's by a label, or by an annotation where the name does not fit into a label.
func TestNamedFor(t *testing.T) {
	long := strings.Repeat("d", 64)
	of := func(label, annotation string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{labels.VirtualClaimName: label}, Annotations: map[string]string{labels.VirtualClaimName: annotation},
		}}
	}
	for _, row := range []struct {
		real              *corev1.PersistentVolumeClaim
		claim             string
		changes           bool
		label, annotation string
	}{
		{real: of("data", ""), claim: "data"},
		{real: of("", long), claim: long},
		{real: of("other", ""), claim: "data", changes: true, label: "data"},
		{real: of("other", ""), claim: long, changes: true, annotation: long},
	} {
		got := namedFor(row.real, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: row.claim}})
		switch {
		case (got != nil) != row.changes:
			t.Errorf("%+v for %s: %+v", row.real, row.claim, got)
		case got != nil && (got.GetLabels()[labels.VirtualClaimName] != row.label || got.GetAnnotations()[labels.VirtualClaimName] != row.annotation):
			t.Errorf("%+v for %s: %v, %v", row.real, row.claim, got.GetLabels(), got.GetAnnotations())
		}
	}
}

// TestReader: a pod that counts has the data alone; one that copies has its keys as well, and reads the user's claim until the volume is taken away. It
// runs where the pods of the user run.
func TestReader(t *testing.T) {
	const keys = ", keys liqo-move-01234567-source"
	for mode, want := range map[string]string{modeMeasure: "data", modeCopy: "data" + keys, modeFinish: "liqo-move-01234567-source" + keys} {
		f := during(v1alpha1.MoveCopying)
		for _, node := range []string{"", "worker"} {
			f.Move.Status.Node = node
			pod, _ := f.reader(mode).(*corev1.Pod)
			got := pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
			if len(pod.Spec.Volumes) > 1 {
				got += ", keys " + pod.Spec.Volumes[1].Secret.SecretName
			}
			if got != want || len(pod.Spec.Volumes) != len(pod.Spec.Containers[0].VolumeMounts) {
				t.Errorf("%s: %s, want %s", mode, got, want)
			}
			if (pod.Spec.Affinity != nil) != (node != "") {
				t.Errorf("%s, node %q: %+v", mode, node, pod.Spec.Affinity)
			}
		}
	}
	server, _ := during(v1alpha1.MoveCopying).server().(*corev1.Pod)
	if got := server.Spec.Volumes[1].Secret.SecretName; got != "liqo-move-01234567-target" {
		t.Errorf("the pod that receives has the keys %s", got)
	}
}

// TestFence: until a pass has an address, nothing reaches the pod that receives; then that address alone. Only what belongs to one side has a role.
func TestFence(t *testing.T) {
	f := during(v1alpha1.MoveCopying)
	for address, want := range map[string]int{"": 0, "10.0.0.9/32": 1} {
		policy, _ := f.policy(address).(*networkingv1.NetworkPolicy)
		if rules := policy.Spec.Ingress; len(rules) != want || want == 1 && rules[0].From[0].IPBlock.CIDR != address {
			t.Errorf("for %q: %+v", address, rules)
		}
	}
	if _, has := f.grant().GetLabels()[labels.MoveRole]; has {
		t.Error("the rights of a move have a role")
	}
	if role := f.server().GetLabels()[labels.MoveRole]; role != labels.MoveRoleTarget {
		t.Errorf("the pod that receives has the role %q", role)
	}
}

// TestProbe: a probe may run where the old data was, and on no condition at the target.
func TestProbe(t *testing.T) {
	for name, row := range map[string]struct {
		change change
		want   []string // the keys of the old place
	}{
		"no record":           {noRecord, nil},
		"usable everywhere":   {func(*Facts) {}, nil},
		"nothing is required": {func(f *Facts) { f.SourceVolume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{} }, nil},
		"one place": {func(f *Facts) {
			f.SourceVolume.Spec.NodeAffinity = pinned(corev1.LabelHostname, corev1.NodeSelectorOpIn, "worker")
		}, []string{corev1.LabelHostname}},
	} {
		f := during(v1alpha1.MoveSwitching)
		row.change(f)
		pod, _ := f.probe().(*corev1.Pod)
		terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		var got []string
		for _, one := range terms[0].MatchExpressions {
			got = append(got, one.Key)
		}
		if len(terms) != 1 || !slices.Equal(got, row.want) {
			t.Errorf("%s: %+v", name, terms)
		}
		if not := terms[0].MatchFields; len(not) != 1 || not[0].Operator != corev1.NodeSelectorOpNotIn || not[0].Values[0] != "liqo-milan" {
			t.Errorf("%s: it may run at the target: %+v", name, not)
		}
	}
}
