// SPDX-License-Identifier: Apache-2.0

package spread

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/network/report"
)

func testNode(name string, ready bool) corev1.Node {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
	}
}

func TestToMove(t *testing.T) {
	type facts struct {
		pods         []corev1.Pod
		observations map[int]report.Observation
		nodes        []corev1.Node
	}
	pod := func(lane int, node string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("gateway-%d", lane), Labels: map[string]string{labels.GatewayLane: fmt.Sprint(lane)}},
			Spec:       corev1.PodSpec{NodeName: node},
		}
	}
	for name, row := range map[string]struct {
		change func(*facts)
		want   string
	}{
		"both on one node": {func(*facts) {}, "gateway-1"},
		"apart":            {func(f *facts) { f.pods[1].Spec.NodeName = "n2" }, ""},
		"one gateway":      {func(f *facts) { f.pods = f.pods[:1] }, ""},
		"one node":         {func(f *facts) { f.nodes = f.nodes[:1] }, ""},
		"the other is off": {func(f *facts) { f.nodes[1] = testNode("n2", false) }, ""},
		"cordoned":         {func(f *facts) { f.nodes[1].Spec.Unschedulable = true }, ""},
		"virtual":          {func(f *facts) { f.nodes[1].Labels = map[string]string{labels.Type: labels.TypeVirtualNode} }, ""},
		"tainted": {func(f *facts) {
			f.nodes[1].Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		}, ""},
		"tainted a little": {func(f *facts) {
			f.nodes[1].Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}
		}, "gateway-1"},
		"tolerated": {func(f *facts) {
			f.nodes[1].Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
			f.pods[1].Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, "gateway-1"},
		"bound elsewhere": {func(f *facts) {
			f.pods[0].Spec.NodeSelector, f.pods[1].Spec.NodeSelector = map[string]string{"zone": "a"}, map[string]string{"zone": "a"}
		}, ""},
		"one ends":          {func(f *facts) { now := metav1.Now(); f.pods[0].DeletionTimestamp = &now }, ""},
		"one is not placed": {func(f *facts) { f.pods[0].Spec.NodeName = "" }, ""},
		"one has no report": {func(f *facts) { delete(f.observations, 0) }, ""},
		"one is silent":     {func(f *facts) { h := f.observations[0]; h.Silent = true; f.observations[0] = h }, ""},
		"one has failed":    {func(f *facts) { h := f.observations[0]; h.Reported.Error = "x"; f.observations[0] = h }, ""},
		"one is of before":  {func(f *facts) { h := f.observations[0]; h.Pod = "gateway-0-old"; f.observations[0] = h }, ""},
		"the other is down": {func(f *facts) { f.observations[0].Reported.Peers[1].Up = false }, ""},
		"this one is down":  {func(f *facts) { f.observations[1].Reported.Peers[0].Up = false }, ""},
		"one replaces it":   {func(f *facts) { f.pods = append(f.pods, pod(1, "n1")) }, ""},
		"three on two nodes": {func(f *facts) {
			f.pods = append(f.pods, pod(2, "n2"))
			f.observations[2] = report.Observation{Lane: 2, Pod: "gateway-2"}
		}, ""},
	} {
		f := &facts{
			pods: []corev1.Pod{pod(0, "n1"), pod(1, "n1")}, nodes: []corev1.Node{testNode("n1", true), testNode("n2", true)},
			observations: map[int]report.Observation{},
		}
		for lane := range 2 {
			f.observations[lane] = report.Observation{
				Lane: lane, Pod: fmt.Sprintf("gateway-%d", lane),
				Reported: report.Gateway{Peers: []report.Peer{{ClusterID: "a", Up: true}, {ClusterID: "b", Up: true}}},
			}
		}
		row.change(f)
		got := ""
		if move := toMove(f.pods, f.observations, f.nodes); move != nil {
			got = move.Name
		}
		if got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}
