// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"

	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

// change is what is different from a move that goes well.
type change = func(*Facts)

// step is a row of TestSteps.
type step struct {
	name, want string
	changes    []change
}

const (
	verifiedPass   = `{"all":{"files":1,"bytes":5},"sent":{"files":1,"bytes":5},"seconds":1,"verified":true}`
	unverifiedPass = `{"all":{"files":1,"bytes":5},"sent":{"files":1,"bytes":5},"seconds":1}`
)

// steps are what a move does next, by phase and by what it sees, until the target is verified.
var steps = map[v1alpha1.MovePhase][]step{
	v1alpha1.MovePreparing: {
		{"without rights", "create RoleBinding liqo-move-01234567", []change{cleared}},
		{"a dry run", "then Measuring: counting the files", []change{func(f *Facts) { f.Move.Spec.DryRun = true }}},
		{"the volume is gone", "then Restoring: volume pvc-claim of claim data was deleted", []change{func(f *Facts) { f.Volume = nil }}},
		{
			"nothing yet",
			"create PersistentVolumeClaim liqo-move-01234567-target; create PersistentVolume liqo-move-01234567-89ab (Retain, data pvc-claim); " +
				"create PersistentVolumeClaim liqo-move-01234567-source; make the keys for VolumeMove data; create Service liqo-move-01234567; apply NetworkPolicy liqo-move-01234567",
			[]change{noTarget, noSource, func(f *Facts) { f.Server, f.Service, f.Fenced = nil, false, false }},
		},
		{
			"only the target",
			"create PersistentVolume liqo-move-01234567-89ab (Retain, data pvc-claim); create PersistentVolumeClaim liqo-move-01234567-source",
			[]change{func(f *Facts) { f.Source, f.SourceVolume = nil, nil }},
		},
		{
			"refused by the provider",
			"then Restoring: liqo-milan refuses the claim for the data: quota",
			[]change{func(f *Facts) { f.Refused = "quota" }},
		},
		{
			"the provider has made no volume",
			"wait: waiting for a volume in liqo-milan: claim liqo-move-01234567-target",
			[]change{func(f *Facts) { f.TargetVolume, f.Server = nil, nil }},
		},
		{
			"for a while",
			"wait: waiting for a volume in liqo-milan: claim liqo-move-01234567-target",
			[]change{func(f *Facts) { f.TargetVolume, f.Server = nil, nil }, after(ready)},
		},
		{
			"for long",
			"then Restoring: liqo-milan made no volume for the data within 5m0s; see the events of claim liqo-move-01234567-target",
			[]change{func(f *Facts) { f.TargetVolume, f.Server = nil, nil }, after(ready + 1)},
		},
		{"the pod that receives is missing", "create Pod liqo-move-01234567-target", []change{func(f *Facts) { f.Server = nil }}},
		{"it has ended", "delete Pod server", []change{func(f *Facts) { f.Server.Status.Phase = corev1.PodFailed }}},
		{
			"it has ended, and it is late",
			"then Restoring: the pod that is to receive the data was not ready within 5m0s: pod server is Failed",
			[]change{func(f *Facts) { f.Server.Status = corev1.PodStatus{Phase: corev1.PodFailed} }, after(ready + 1)},
		},
		{"it is not ready", "wait: waiting for the target: pod server is Running", []change{func(f *Facts) { f.Server.Status.Conditions = nil }}},
		{
			"it is not ready for long",
			"then Restoring: the pod that is to receive the data was not ready within 5m0s: pod server is Running",
			[]change{func(f *Facts) { f.Server.Status.Conditions = nil }, after(ready + 1)},
		},
		{"it goes", "wait: waiting for the target: pod server is Running", []change{func(f *Facts) { leaving(f.Server) }}},
		{
			"the second record is not bound",
			"wait: waiting for the target: pod server is Running",
			[]change{func(f *Facts) { f.Source.Status.Phase = corev1.ClaimPending }},
		},
		{"all is there", "then Copying", nil},
	},
	v1alpha1.MoveMeasuring: {
		{"nothing yet", "create Pod liqo-move-01234567-copy-0", []change{noTarget, noSource}},
		{
			"the pass has counted",
			"then Removing: dry run: nothing was changed; 1 files, 5 bytes would go from this cluster to liqo-milan",
			[]change{noTarget, noSource, aPass(corev1.PodSucceeded, unverifiedPass)},
		},
	},
	v1alpha1.MoveCopying: {
		{"nothing yet", "create Pod liqo-move-01234567-copy-0", nil},
		{"a pod uses the claim", "then Restoring: pods use the claim: db-0; stop them, or move with --online", []change{aUser("worker")}},
		{"a pod waits for the claim", "create Pod liqo-move-01234567-copy-0", []change{aUser("")}},
		{"a pod uses it, online", "create Pod liqo-move-01234567-copy-0", []change{aUser("worker"), online}},
		{"the volume is gone", "then Restoring: volume pvc-claim of claim data was deleted", []change{func(f *Facts) { f.Volume = nil }}},
		{
			"the user has changed the policy",
			"policy PersistentVolume liqo-move-01234567-89ab (Retain, data pvc-claim)",
			[]change{func(f *Facts) { f.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain }},
		},
		{"copied", "pass 1; then Stopping", []change{aPass(corev1.PodSucceeded, unverifiedPass)}},
		{"copied online, in short", "pass 1; then Stopping", []change{online, aPass(corev1.PodSucceeded, `{"seconds":5}`)}},
		{"copied online, at length", "pass 1; wait", []change{online, aPass(corev1.PodSucceeded, `{"seconds":6}`)}},
		{"copied at length", "pass 1; then Stopping", []change{aPass(corev1.PodSucceeded, `{"seconds":6}`)}},
		{
			"copied online often",
			"pass 5; then Stopping",
			[]change{online, func(f *Facts) { f.Move.Status.Passes = make([]v1alpha1.MovePass, mostPasses-1) }, aPass(corev1.PodSucceeded, `{"seconds":6}`)},
		},
		{
			"copied online nearly as often",
			"pass 4; wait",
			[]change{online, func(f *Facts) { f.Move.Status.Passes = make([]v1alpha1.MovePass, mostPasses-2) }, aPass(corev1.PodSucceeded, `{"seconds":6}`)},
		},
	},
	v1alpha1.MoveStopping: {
		{"a pass is still there", "delete Pod liqo-move-01234567-copy-0", []change{aPass(corev1.PodSucceeded, "")}},
		{
			"a pass goes",
			"wait: waiting until the pods that copy end",
			[]change{aPass(corev1.PodSucceeded, ""), func(f *Facts) { leaving(&f.Copies[0]) }},
		},
		{"the volume is to be kept", "policy PersistentVolume pvc-claim (Retain, data pvc-claim)", nil},
		{"it is kept", "fence PersistentVolume pvc-claim (Retain, data pvc-claim)", []change{keptVolume}},
		{"a pod uses the claim", "then Restoring: pods use the claim: db-0; stop them, or move with --online", []change{keptVolume, aUser("worker")}},
		{"a pod uses it, online", "fence PersistentVolume pvc-claim (Retain, data pvc-claim)", []change{keptVolume, aUser("worker"), online}},
		{"attached", "wait: waiting until the volume is detached from its node", []change{keptVolume, online, func(f *Facts) { f.Attached = true }}},
		{
			"attached, with a pod",
			"then Restoring: the volume of claim data is attached to a node by its driver, " +
				"so it cannot be copied while pods use it; stop them, and move without --online",
			[]change{keptVolume, online, aUser("worker"), func(f *Facts) { f.Attached = true }},
		},
		{
			"the volume goes",
			"fence PersistentVolume pvc-claim (Delete, data pvc-claim)",
			[]change{func(f *Facts) { leaving(f.Volume) }, aUser("worker")},
		},
		{
			"the volume goes, but another finalizer holds it",
			"wait: volume pvc-claim is being deleted; its finalizers are other, more",
			[]change{func(f *Facts) { leaving(f.Volume); f.Volume.Finalizers = []string{"other", "more"} }},
		},
		{"taken away", "then Finishing", []change{noVolume}},
		{
			"taken away, and still attached",
			"wait: waiting until the volume is detached from its node",
			[]change{noVolume, func(f *Facts) { f.Attached = true }},
		},
		{
			"taken away, and a pod started",
			"then Restoring: pods use the claim: db-0; stop them, or move with --online",
			[]change{noVolume, aUser("worker")},
		},
		{"taken away, and a pod waits", "then Finishing", []change{noVolume, aUser("")}},
		{"taken away online, with a pod", "evict Pod db-0; wait: waiting until the pods end: db-0", []change{noVolume, online, aUser("worker")}},
		{
			"taken away online, and the pod goes",
			"wait: waiting until the pods end: db-0",
			[]change{noVolume, online, aUser("worker"), func(f *Facts) { leaving(&f.Users[0]) }},
		},
		{
			"taken away online, with a pod, attached",
			"evict Pod db-0; wait: waiting until the pods end: db-0",
			[]change{noVolume, online, aUser("worker"), func(f *Facts) { f.Attached = true }},
		},
	},
	v1alpha1.MoveFinishing: {
		{"nothing yet", "create Pod liqo-move-01234567-copy-0", nil},
		{"the pass was verified", "pass 1; then Switching", []change{aPass(corev1.PodSucceeded, verifiedPass)}},
		{
			"the pass was not verified",
			"wait: a pod failed and is started again: pod liqo-move-01234567-copy-0 has not verified the files",
			[]change{aPass(corev1.PodSucceeded, unverifiedPass)},
		},
		{
			"the pass left no result",
			"wait: a pod failed and is started again: pod liqo-move-01234567-copy-0 left no result: invalid character '?' looking for beginning of value",
			[]change{aPass(corev1.PodSucceeded, "?")},
		},
		{"the pass failed", "wait: a pod failed and is started again: broken pipe", []change{aPass(corev1.PodFailed, "broken pipe")}},
		{
			"the pass failed often",
			"then Restoring: 11 pods failed, the last one with: broken pipe",
			[]change{func(f *Facts) { f.Move.Status.Failures = mostFailures }, aPass(corev1.PodFailed, "broken pipe")},
		},
		{
			"one failure before that",
			"wait: a pod failed and is started again: broken pipe",
			[]change{func(f *Facts) { f.Move.Status.Failures = mostFailures - 1 }, aPass(corev1.PodFailed, "broken pipe")},
		},
		{
			"the target is full",
			"then Restoring: the data does not fit into the volume in liqo-milan: write failed: No space left on device (28)",
			[]change{aPass(corev1.PodFailed, "write failed: No space left on device (28)")},
		},
		{
			"a quota of the target",
			"then Restoring: the data does not fit into the volume in liqo-milan: Disk quota exceeded",
			[]change{aPass(corev1.PodFailed, "Disk quota exceeded")},
		},
		{"the pass runs", "wait: pass 1 runs in pod liqo-move-01234567-copy-0", []change{aPass(corev1.PodRunning, "")}},
		{"a pod uses the claim", "then Restoring: pods use the claim: db-0; stop them, or move with --online", []change{aUser("worker")}},
		{
			"a pod uses the claim when the pass is verified",
			"then Restoring: pods use the claim: db-0; stop them, or move with --online",
			[]change{aUser("worker"), aPass(corev1.PodSucceeded, verifiedPass)},
		},
		{"a pod waits for the claim, on no node", "pass 1; then Switching", []change{aUser(""), aPass(corev1.PodSucceeded, verifiedPass)}},
		{
			"the volume is attached",
			"then Restoring: the volume was attached to a node again",
			[]change{func(f *Facts) { f.Attached = true }, aPass(corev1.PodSucceeded, verifiedPass)},
		},
		{
			"the volume came back",
			"then Restoring: volume pvc-claim came back while the move had taken it away",
			[]change{func(f *Facts) { f.Volume = during("").Volume }, aPass(corev1.PodSucceeded, verifiedPass)},
		},
		{
			"another address is admitted",
			"apply NetworkPolicy liqo-move-01234567",
			[]change{aPass(corev1.PodRunning, ""), func(f *Facts) { f.Admitted = "10.0.0.8/32" }},
		},
		{
			"an earlier pass is still there",
			"delete Pod liqo-move-01234567-copy-0",
			[]change{aPass(corev1.PodFailed, ""), func(f *Facts) { f.Move.Status.Failures = 1 }},
		},
		{
			"an earlier pass goes",
			"create Pod liqo-move-01234567-copy-1",
			[]change{aPass(corev1.PodFailed, ""), func(f *Facts) { f.Move.Status.Failures = 1; leaving(&f.Copies[0]) }},
		},
		{"the pod that receives is gone", "create Pod liqo-move-01234567-target", []change{func(f *Facts) { f.Server = nil }}},
		{
			"the pod that receives is gone, and the pass runs",
			"create Pod liqo-move-01234567-target",
			[]change{aPass(corev1.PodRunning, ""), func(f *Facts) { f.Server = nil }},
		},
		{"the pod that receives has ended", "delete Pod server", []change{func(f *Facts) { f.Server.Status.Phase = corev1.PodSucceeded }}},
		{
			"the pod that receives has ended and goes",
			"wait: waiting for the target: pod server is Succeeded",
			[]change{func(f *Facts) { f.Server.Status.Phase = corev1.PodSucceeded; leaving(f.Server) }},
		},
		{
			"the pod that receives is not ready",
			"wait: waiting for the target: pod server is Running",
			[]change{func(f *Facts) { f.Server.Status.Conditions = nil }},
		},
		{
			"the second record is gone",
			"then Restoring: volume liqo-move-01234567-89ab was deleted",
			[]change{func(f *Facts) { f.SourceVolume = nil }},
		},
		{
			"the claim of the source goes",
			"then Restoring: claim liqo-move-01234567-source was deleted",
			[]change{func(f *Facts) { leaving(f.Source) }},
		},
		{
			"the volume of the target goes",
			"then Restoring: the volume of claim liqo-move-01234567-target was deleted",
			[]change{func(f *Facts) { leaving(f.TargetVolume) }},
		},
		{
			"the claim of the target is gone",
			"then Restoring: claim liqo-move-01234567-target was deleted",
			[]change{func(f *Facts) { f.Target = nil }},
		},
		{"the user deletes the claim", "then Restoring: the claim was deleted", []change{func(f *Facts) { leaving(f.Claim) }}},
		{"the claim is another one", "then Restoring: the claim was deleted", []change{func(f *Facts) { f.Claim.UID = "another" }}},
		{"cancelled", "then Restoring: cancelled", []change{func(f *Facts) { leaving(f.Move) }}},
	},
}
