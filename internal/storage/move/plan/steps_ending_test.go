// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	v1alpha1 "liqo.io/liqo/apis/storage/v1alpha1"
)

// objectsGo is the step that deletes what is neither a claim nor a pod.
const objectsGo = "delete Secret liqo-move-01234567-source; delete Secret liqo-move-01234567-target; " +
	"delete Service liqo-move-01234567; delete NetworkPolicy liqo-move-01234567"

// endings are what a move does next after that, and while it takes itself back.
var endings = map[v1alpha1.MovePhase][]step{
	v1alpha1.MoveSwitching: {
		{"pods of the move are there", "delete Pod server", []change{func(f *Facts) { f.Server = aPod("server", func(*corev1.Pod) {}) }}},
		{
			"pods of the move go",
			"wait: waiting until the pods of the move end",
			[]change{func(f *Facts) { f.Server = aPod("server", func(p *corev1.Pod) { leaving(p) }) }},
		},
		{"the data is to be handed over", "policy PersistentVolume pvc-target (Retain, data pvc-target)", nil},
		{"it is handed over", "create PersistentVolume pvc-claim (Delete, data pvc-target)", []change{handedOver}},
		{
			"the provider has not named its volume",
			"wait: waiting for the name of the volume in liqo-milan",
			[]change{func(f *Facts) { delete(f.TargetVolume.Annotations, labels.RemoteVolume) }},
		},
		{
			"the volume came back with the old data",
			"then Restoring: volume pvc-claim came back while the move had taken it away",
			[]change{func(f *Facts) { f.Volume = during("").Volume }},
		},
		{
			"the volume came back with the old data after the claim had the new",
			"wait: volume pvc-claim came back with the data in this cluster, after the claim had that in liqo-milan; " +
				"both may have changes, and both stay. Copy those in this cluster that are needed, " +
				"and delete this PersistentVolume: the claim gets the data in liqo-milan again",
			[]change{handedOver, func(f *Facts) { f.Volume = during("").Volume }},
		},
		{
			"and goes",
			"policy PersistentVolume pvc-claim (Retain, data pvc-claim)",
			[]change{handedOver, func(f *Facts) { f.Volume = during("").Volume; leaving(f.Volume) }},
		},
		{"the volume came back with other data", "policy PersistentVolume pvc-claim (Retain, data pvc-other)", []change{handedOver, otherData}},
		{
			"other data, kept",
			"fence PersistentVolume pvc-claim (Retain, data pvc-other)",
			[]change{handedOver, otherData, func(f *Facts) { f.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain }},
		},
		{"a pod uses the old data", "then Restoring: pods use the claim: db-0; stop them, or move with --online", []change{aUser("worker")}},
		{
			"a pod uses the claim, which can have the new data",
			"create PersistentVolume pvc-claim (Delete, data pvc-target)",
			[]change{handedOver, aUser("worker")},
		},
		{"the old volume is attached", "then Restoring: the volume was attached to a node again", []change{func(f *Facts) { f.Attached = true }}},
		{"cancelled", "then Restoring: cancelled", []change{func(f *Facts) { leaving(f.Move) }}},
		{
			"cancelled after the hand-over",
			"create PersistentVolume pvc-claim (Delete, data pvc-target)",
			[]change{handedOver, func(f *Facts) { leaving(f.Move) }},
		},
		{
			"the target is gone",
			"then Restoring: the volume of claim liqo-move-01234567-target was deleted",
			[]change{func(f *Facts) { f.TargetVolume = nil }},
		},
		{
			"the target is gone, after the claim got it",
			"then Removing: the data is in liqo-milan",
			[]change{newData, func(f *Facts) { f.TargetVolume = nil }},
		},
		{
			"the target and both records are gone",
			"then Restoring: the volume of claim liqo-move-01234567-target was deleted",
			[]change{newData, func(f *Facts) { f.TargetVolume, f.SourceVolume = nil, nil }},
		},
		{"the claim has the new data", "then Removing: the data is in liqo-milan", []change{newData}},
		{
			"the claim has it and is not bound",
			"touch PersistentVolumeClaim data",
			[]change{newData, func(f *Facts) { f.Claim.Status.Phase = corev1.ClaimLost }},
		},
		{
			"the volume is not bound",
			"touch PersistentVolumeClaim data",
			[]change{newData, func(f *Facts) { f.Volume.Status.Phase = corev1.VolumeAvailable }},
		},
		{
			"touched, and not bound yet",
			"wait: waiting until the claim is bound again",
			[]change{newData, touched, func(f *Facts) { f.Claim.Status.Phase = corev1.ClaimLost }},
		},
		{
			"a deleted claim has the new data",
			"then Removing: the data is in liqo-milan",
			[]change{newData, func(f *Facts) { leaving(f.Claim); f.Claim.Status.Phase = corev1.ClaimLost }},
		},
		{"at one place only, no probe", "create Pod liqo-move-01234567-probe", []change{newData, affine}},
		{
			"the scheduler does not know it",
			"wait: waiting until the scheduler knows the new place of the volume",
			[]change{newData, affine, probed("worker", 0)},
		},
		{"and still does not", "delete Pod probe", []change{newData, affine, probed("worker", probeAgain), after(probeAgain + 1)}},
		{"the scheduler knows it", "then Removing: the data is in liqo-milan", []change{newData, affine, probed("", 0)}},
		{"the scheduler does not answer", "then Removing: the data is in liqo-milan", []change{newData, affine, after(gone + 1)}},
	},
	v1alpha1.MoveRemoving: {
		{"the claim of the target goes first", "policy PersistentVolume pvc-target (Retain, data pvc-target)", nil},
		{"the claim has the old data", "then Switching: volume pvc-claim has the old data", []change{func(f *Facts) { f.Volume.Annotations = nil }}},
		{
			"the claim has the old data, and there is no other",
			"wait: volume pvc-claim has the old data; the old copy stays, create that PersistentVolume again",
			[]change{func(f *Facts) { f.Volume.Annotations, f.TargetVolume = nil, nil }},
		},
		{"the claim has no volume", "then Switching: volume pvc-claim is missing", []change{func(f *Facts) { f.Volume = nil }}},
		{
			"the claim has no volume, and the copy is gone",
			"wait: volume pvc-claim is missing; the old copy stays, create that PersistentVolume again",
			[]change{func(f *Facts) { f.Volume, f.TargetVolume = nil, nil }},
		},
		{
			"the user has deleted the claim",
			"delete PersistentVolumeClaim liqo-move-01234567-target",
			[]change{func(f *Facts) { f.Volume, f.Claim = nil, nil }},
		},
		{"pods of the move are there", "delete Pod server", []change{func(f *Facts) { f.Server = aPod("server", func(*corev1.Pod) {}) }}},
		{"pods of the move go", "wait", []change{func(f *Facts) { f.Server = aPod("server", func(p *corev1.Pod) { leaving(p) }) }}},
		{
			"pods of the move go for long",
			"policy PersistentVolume pvc-target (Retain, data pvc-target)",
			[]change{func(f *Facts) { f.Server = aPod("server", func(p *corev1.Pod) { leaving(p) }) }, after(gone)},
		},
		{"the target goes", "wait", []change{kept, func(f *Facts) { leaving(f.Target) }}},
		{"the target goes for long", "delete PersistentVolume pvc-target", []change{kept, func(f *Facts) { leaving(f.Target) }, after(gone)}},
		{"its volume is left", "delete PersistentVolume pvc-target", []change{kept, func(f *Facts) { f.Target = nil }}},
		{"the target is gone", "policy PersistentVolume liqo-move-01234567-89ab (Delete, data pvc-claim)", []change{noTarget}},
		{"the old data goes", "delete PersistentVolumeClaim liqo-move-01234567-source", []change{noTarget, oldGoes}},
		{"its claim goes", "wait", []change{noTarget, oldGoes, func(f *Facts) { leaving(f.Source) }}},
		{"the volume of the old data is left", "wait", []change{noTarget, oldGoes, func(f *Facts) { f.Source = nil }}},
		{
			"the volume of the old data is left for long",
			objectsGo,
			[]change{noTarget, oldGoes, func(f *Facts) { f.Source = nil }, after(gone)},
		},
		{
			"the user keeps it",
			"delete PersistentVolumeClaim liqo-move-01234567-source",
			[]change{noTarget, func(f *Facts) { f.Move.Spec.KeepSource = true }},
		},
		{
			"the user keeps it, and its claim is gone",
			objectsGo,
			[]change{noTarget, func(f *Facts) { f.Move.Spec.KeepSource, f.Source = true, nil }},
		},
		{
			"kept, and all else is gone",
			"then Completed: ; the old copy in this cluster is volume liqo-move-01234567-89ab",
			[]change{noTarget, cleared, func(f *Facts) { f.Move.Spec.KeepSource, f.Source = true, nil }},
		},
		{
			"nothing is left",
			objectsGo,
			[]change{noTarget, noSource},
		},
		{
			"the Service is gone",
			"delete Secret liqo-move-01234567-source; delete Secret liqo-move-01234567-target; delete NetworkPolicy liqo-move-01234567",
			[]change{noTarget, noSource, func(f *Facts) { f.Service = false }},
		},
		{
			"only rights are left",
			"delete Secret liqo-move-01234567-source; delete Secret liqo-move-01234567-target; delete RoleBinding liqo-move-01234567",
			[]change{noTarget, noSource, func(f *Facts) { f.Service, f.Fenced = false, false }},
		},
		{"all is gone", "then Completed", []change{noTarget, noSource, cleared}},
		{"a pod was placed by the old volume", "delete Pod late", []change{misplaced(true)}},
		{
			"one that nothing creates again",
			"then Completed: ; pod late was placed on node worker before, where it cannot start: delete it, and create it again",
			[]change{noTarget, noSource, cleared, misplaced(false)},
		},
	},
	v1alpha1.MoveRestoring: {
		{"the volume comes back", "create PersistentVolume pvc-claim (Delete, data pvc-claim)", nil},
		{"a pass still reads it", "wait", []change{aPass(corev1.PodRunning, ""), func(f *Facts) { leaving(&f.Copies[0]) }}},
		{
			"a pass still reads it at a provider",
			"create PersistentVolume pvc-claim (Delete, data pvc-claim)",
			[]change{aPass(corev1.PodRunning, ""), func(f *Facts) { leaving(&f.Copies[0]); f.SourceVolume.Labels = f.TargetVolume.Labels }},
		},
		{
			"the pod that receives goes",
			"create PersistentVolume pvc-claim (Delete, data pvc-claim)",
			[]change{func(f *Facts) { f.Server = aPod("server", func(p *corev1.Pod) { leaving(p) }) }},
		},
		{"pods of the move are there", "delete Pod liqo-move-01234567-copy-0", []change{aPass(corev1.PodRunning, "")}},
		{"the claim has the new data", "then Switching", []change{newData}},
		{"the claim has other data", "policy PersistentVolume pvc-claim (Retain, data pvc-other)", []change{otherData}},
		{"the volume goes", "fence PersistentVolume pvc-claim (Delete, data pvc-claim)", []change{back, func(f *Facts) { leaving(f.Volume) }}},
		{"the volume goes for good", "wait", []change{back, func(f *Facts) { leaving(f.Volume); f.Volume.Finalizers = []string{"other"} }}},
		{
			"the volume is to have its policy",
			"policy PersistentVolume pvc-claim (Delete, data pvc-claim)",
			[]change{back, func(f *Facts) { f.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain }},
		},
		{"the claim is not bound", "touch PersistentVolumeClaim data", []change{back, func(f *Facts) { f.Claim.Status.Phase = corev1.ClaimLost }}},
		{"the claim was touched", "wait", []change{back, touched, func(f *Facts) { f.Claim.Status.Phase = corev1.ClaimLost }}},
		{
			"a pod of the move is still there",
			"wait",
			[]change{back, func(f *Facts) { f.Server = aPod("server", func(p *corev1.Pod) { leaving(p) }) }},
		},
		{
			"for long",
			"delete PersistentVolumeClaim liqo-move-01234567-target",
			[]change{back, func(f *Facts) { f.Server = aPod("server", func(p *corev1.Pod) { leaving(p) }) }, after(gone)},
		},
		{"the target goes with its data", "delete PersistentVolumeClaim liqo-move-01234567-target", []change{back}},
		{"the target is kept", "policy PersistentVolume pvc-target (Delete, data pvc-target)", []change{back, kept}},
		{"the target goes", "wait", []change{back, func(f *Facts) { leaving(f.Target) }}},
		{
			"the target goes for long",
			"delete PersistentVolumeClaim liqo-move-01234567-source",
			[]change{back, func(f *Facts) { leaving(f.Target) }, after(gone)},
		},
		{"only records are left", "delete PersistentVolumeClaim liqo-move-01234567-source", []change{back, noTarget}},
		{
			"the record of the source is left",
			"delete PersistentVolume liqo-move-01234567-89ab",
			[]change{back, noTarget, func(f *Facts) { f.Source = nil }},
		},
		{"all is gone", "then Failed", []change{back, noTarget, noSource, cleared}},
		{
			"all is gone but the copy, for long",
			"then Failed: ; the copy in liqo-milan is being deleted",
			[]change{back, noSource, cleared, func(f *Facts) { leaving(f.Target) }, after(gone)},
		},
		{
			"the user has deleted the claim",
			"policy PersistentVolume liqo-move-01234567-89ab (Delete, data pvc-claim)",
			[]change{noTarget, func(f *Facts) { f.Claim = nil }},
		},
		{
			"the data of a deleted claim goes",
			"delete PersistentVolumeClaim liqo-move-01234567-source",
			[]change{noTarget, oldGoes, func(f *Facts) { f.Claim = nil }},
		},
		{"the data of a deleted claim is going", "wait", []change{noTarget, oldGoes, func(f *Facts) { f.Claim = nil; leaving(f.Source) }}},
		{
			"the data of a deleted claim is going for long",
			objectsGo,
			[]change{noTarget, oldGoes, func(f *Facts) { f.Claim = nil; leaving(f.Source) }, after(gone)},
		},
	},
}
