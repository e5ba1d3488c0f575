// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/network/report"
)

func TestToMove(t *testing.T) {
	type facts struct {
		pods         []corev1.Pod
		observations map[int]observation
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
		"one is silent":     {func(f *facts) { h := f.observations[0]; h.silent = true; f.observations[0] = h }, ""},
		"one has failed":    {func(f *facts) { h := f.observations[0]; h.reported.Error = "x"; f.observations[0] = h }, ""},
		"one is of before":  {func(f *facts) { h := f.observations[0]; h.pod = "gateway-0-old"; f.observations[0] = h }, ""},
		"the other is down": {func(f *facts) { f.observations[0].reported.Peers[1].Up = false }, ""},
		"this one is down":  {func(f *facts) { f.observations[1].reported.Peers[0].Up = false }, ""},
		"one replaces it":   {func(f *facts) { f.pods = append(f.pods, pod(1, "n1")) }, ""},
		"three on two nodes": {func(f *facts) {
			f.pods = append(f.pods, pod(2, "n2"))
			f.observations[2] = observation{lane: 2, pod: "gateway-2"}
		}, ""},
	} {
		f := &facts{pods: []corev1.Pod{pod(0, "n1"), pod(1, "n1")}, nodes: []corev1.Node{testNode("n1", true), testNode("n2", true)}, observations: map[int]observation{}}
		for lane := range 2 {
			f.observations[lane] = observation{lane: lane, pod: fmt.Sprintf("gateway-%d", lane), reported: report.Gateway{Peers: []report.Peer{{ClusterID: "a", Up: true}, {ClusterID: "b", Up: true}}}}
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

// TestSpread: of two gateways that share a node for long, one is evicted once, but not while a lane is down.
func TestSpread(t *testing.T) {
	b := newBench(t)
	b.options.SpreadAfter = 500 * time.Millisecond
	b.node("n1", "192.0.2.1", true)
	second := b.node("n2", "192.0.2.2", true)
	b.Edit(second, func() { second.Spec.Unschedulable = true })
	first, other := b.gateway(0, "n1"), b.gateway(1, "n1")
	reports := func(g *gateway, up bool) {
		g.reports(func(r *report.Gateway) { r.Peers = []report.Peer{{ClusterID: "milan-id", Up: up}} })
	}
	reports(first, false)
	reports(other, true)
	b.run()
	stays := func(what string, during time.Duration) {
		t.Helper()
		b.expectNoWrites(what, during)
		for _, g := range []*gateway{first, other} {
			if b.Read(g.pod); g.pod.DeletionTimestamp != nil {
				t.Errorf("%s, and yet %s is evicted", what, g.pod.Name)
			}
		}
	}
	b.Until("keys are made", func() bool {
		return b.there(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: KeysSecret}})
	})
	stays("a lane is down and the node is cordoned", 2*time.Second)
	reports(first, true)
	stays("the node is cordoned", 2*time.Second)
	b.Edit(second, func() { second.Spec.Unschedulable, second.Spec.Taints = false, nil }) // a new node has the taint of one that is not Ready
	b.Until("one is evicted", func() bool { return !b.there(other.pod) || other.pod.DeletionTimestamp != nil })
	b.expectNoWrites("one is enough", 2*time.Second)
	if b.Read(first.pod); first.pod.DeletionTimestamp != nil {
		t.Error("both are evicted")
	}
}
