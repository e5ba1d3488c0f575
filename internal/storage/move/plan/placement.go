// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/storage/move/report"
)

// The volume that comes back has the name of the one that was taken away. A scheduler whose watch is late, for example after a restart of the API server,
// still knows the old one, and places pods where the data was. Such a pod waits for ever: the kubelet refuses the volume, and no pod changes its node.

// probeAgain is how long a probe that was placed by the old volume stays, so that a late scheduler causes few pods.
const probeAgain = time.Second

// placed has the scheduler prove that it knows the volume that came back: a pod which uses the claim, and may only run where the old data was, cannot be
// placed any more. A scheduler that does not answer holds up nothing: it places no other pod either.
func (f *Facts) placed() (s Step, proven bool) {
	if f.Volume.Spec.NodeAffinity == nil || f.lasts() > gone {
		return Step{}, true // every place is right, or there is no answer
	}
	probe := f.Probe
	switch {
	case probe == nil:
		return do(Create, f.probe()), false
	case probe.Spec.NodeName != "" && probe.DeletionTimestamp == nil && f.Now.Sub(probe.CreationTimestamp.Time) > probeAgain:
		return do(Delete, probe), false
	case probe.Spec.NodeName == "" && report.Unschedulable(probe):
		return Step{}, true
	}
	return f.wait("waiting until the scheduler knows the new place of the volume"), false
}

// probe is a pod that only the old volume admits to a node. It never runs.
func (f *Facts) probe() Object {
	pod := f.pod(ID(f.Move)+"-"+labels.MoveRoleProbe, labels.MoveRoleProbe, "", f.Move.Name)
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = pod.Spec.Volumes[:1], pod.Spec.Containers[0].VolumeMounts[:1]
	pod.Spec.Containers[0].Command = []string{"/bin/dash", "-c", "exit 1"}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	terms := []corev1.NodeSelectorTerm{{}}
	if old := f.SourceVolume; old != nil && old.Spec.NodeAffinity != nil && old.Spec.NodeAffinity.Required != nil {
		terms = old.Spec.NodeAffinity.DeepCopy().Required.NodeSelectorTerms
	}
	for i := range terms {
		terms[i].MatchFields = append(terms[i].MatchFields, corev1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{f.Move.Spec.TargetNode},
		})
	}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	return pod
}

// replaced are the pods that a late scheduler has placed where the data was, and that their controllers create again. The others are for their user to delete.
// A dry run has moved nothing.
func (f *Facts) replaced() (again []Object, stuck string) {
	if f.Move.Spec.DryRun {
		return nil, ""
	}
	for i := range f.Misplaced {
		switch pod := &f.Misplaced[i]; {
		case pod.DeletionTimestamp != nil:
		case metav1.GetControllerOf(pod) != nil:
			again = append(again, pod)
		default:
			stuck = fmt.Sprintf("; pod %s was placed on node %s before, where it cannot start: delete it, and create it again", pod.Name, pod.Spec.NodeName)
		}
	}
	return again, stuck
}
