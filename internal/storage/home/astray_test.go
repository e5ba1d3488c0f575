// SPDX-License-Identifier: Apache-2.0

package home

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

func nodeOf(name string, virtual bool) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	if virtual {
		node.Labels[labels.Type] = labels.TypeVirtualNode
	}
	return node
}

// podOf returns a pod of a controller that uses the claim data and may run everywhere.
func podOf(name string, change func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "1", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			Tolerations: []corev1.Toleration{{Key: labels.TaintVirtualNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			Volumes: []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			},
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}
	if change != nil {
		change(&pod)
	}
	return pod
}

func affine(key string, operator corev1.NodeSelectorOperator, values ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}},
		}}}
	}
}

// TestBack: only pods that never ran, that a controller makes again and that may run here are replaced.
func TestBack(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	for name, test := range map[string]struct {
		change  func(*corev1.Pod)
		want    string // replace, report, or nothing
		release bool
	}{
		"may run everywhere":      {nil, "replace", true},
		"for other clusters only": {affine(labels.Type, corev1.NodeSelectorOpIn, labels.TypeVirtualNode), "report", false},
		"for a node that is not":  {affine("disk", corev1.NodeSelectorOpExists), "", true},
		"stays here already":      {affine(labels.Type, corev1.NodeSelectorOpNotIn, labels.TypeVirtualNode), "", true},
		"without toleration":      {func(pod *corev1.Pod) { pod.Spec.Tolerations = nil }, "", true},
		"tolerates everything": {func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, "replace", true},
		"of no controller":          {func(pod *corev1.Pod) { pod.OwnerReferences = nil }, "report", false},
		"has a node":                {func(pod *corev1.Pod) { pod.Spec.NodeName = "worker" }, "", true},
		"is being deleted":          {func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }, "", true},
		"uses another claim":        {func(pod *corev1.Pod) { pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "other" }, "", true},
		"an ephemeral one":          {func(pod *corev1.Pod) { pod.Spec.Volumes[0].PersistentVolumeClaim = nil }, "", true},
		"a selector of other nodes": {func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{labels.Type: labels.TypeVirtualNode} }, "report", false},
	} {
		pod := podOf("web", test.change)
		w := back(claim, nodeOf("liqo-milan", true), []corev1.Node{*nodeOf("worker", false)}, []corev1.Pod{pod})
		got := strings.Repeat("replace", len(w.replace)) + strings.Repeat("report", len(w.report))
		if got != test.want || w.release != test.release {
			t.Errorf("%s: %q, released %t; want %q, %t", name, got, w.release, test.want, test.release)
		}
	}
}
