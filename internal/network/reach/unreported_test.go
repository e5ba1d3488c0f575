// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// node has been Ready for a while; negative: its clock is ahead, zero: it is not Ready.
func node(name string, ready time.Duration, change ...func(*corev1.Node)) corev1.Node {
	one := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(time.Hour), Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	condition := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(ready)}
	if ready == 0 {
		condition.Status, condition.LastTransitionTime = corev1.ConditionFalse, ago(time.Second)
	}
	one.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, LastTransitionTime: ago(time.Second)}, condition,
	}
	for _, apply := range change {
		apply(&one)
	}
	return one
}

func agents(age, changed time.Duration) *appsv1.DaemonSet {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(age)}}
	set.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
	status, spec := ago(time.Second), ago(changed)
	set.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "daemonset", Subresource: "status", Time: &status}, {Manager: "none"}, {Manager: "helm", Time: &spec},
	}
	return set
}

// TestUnreported: nodes that are Ready are waited for, but not for long, whatever their clock, and only if they have an agent.
func TestUnreported(t *testing.T) {
	long := agents(24*time.Hour, 24*time.Hour)
	virtual := func(node *corev1.Node) { node.Labels[labels.Type] = labels.TypeVirtualNode }
	windows := func(node *corev1.Node) { node.Labels[corev1.LabelOSStable] = "windows" }
	young := func(node *corev1.Node) { node.CreationTimestamp = ago(10 * time.Second) }
	var many []corev1.Node
	var reported []string
	for i := range 500 {
		name := fmt.Sprintf("n%03d", i)
		if many = append(many, node(name, time.Minute)); i != 7 {
			reported = append(reported, name)
		}
	}
	many[7] = node("n007", 0)
	for name, row := range map[string]struct {
		set     *appsv1.DaemonSet
		nodes   []corev1.Node
		reports []string
		awaited string
		left    time.Duration
		others  string
	}{
		"all reported":                    {long, []corev1.Node{node("a", time.Second), node("b", time.Hour)}, []string{"a", "b", "gone"}, "[]", 0, "[]"},
		"a new node":                      {long, []corev1.Node{node("a", time.Hour), node("b", 30*time.Second)}, []string{"a"}, "[b]", 90 * time.Second, "[]"},
		"a node that was silent too long": {long, []corev1.Node{node("a", ReportTimeout), node("b", time.Hour)}, []string{"b"}, "[]", 0, "[a]"},
		"an installation on old nodes": {
			agents(time.Minute, time.Minute), []corev1.Node{node("b", time.Hour), node("a", time.Hour)}, nil, "[a b]", time.Minute, "[]",
		},
		"an upgrade":                {agents(24*time.Hour, 20*time.Second), []corev1.Node{node("a", time.Hour)}, nil, "[a]", 100 * time.Second, "[]"},
		"an upgrade long ago":       {agents(24*time.Hour, time.Hour), []corev1.Node{node("a", 2*time.Hour)}, nil, "[]", 0, "[a]"},
		"one is never Ready":        {long, []corev1.Node{node("a", time.Hour), node("b", 0)}, []string{"a"}, "[]", 0, "[b]"},
		"one of 500 is never Ready": {agents(time.Minute, time.Second), many, reported, "[]", 0, "[n007]"},
		"nodes without an agent": {
			agents(time.Second, time.Second), []corev1.Node{node("a", time.Second, virtual), node("b", time.Second, windows)}, nil, "[]", 0, "[]",
		},
		"no agents at all":             {nil, []corev1.Node{node("a", time.Second)}, nil, "[]", 0, "[]"},
		"a clock that is ahead":        {long, []corev1.Node{node("a", -time.Hour)}, nil, "[]", 0, "[a]"},
		"a new node with such a clock": {long, []corev1.Node{node("a", -time.Hour, young)}, nil, "[a]", 110 * time.Second, "[]"},
		"the longest wait counts": {
			long,
			[]corev1.Node{node("a", 100*time.Second), node("b", 10*time.Second), node("c", time.Hour)},
			nil, "[a b]", 110 * time.Second,
			"[c]",
		},
	} {
		var reports []netv1alpha1.NodeReport
		for _, one := range row.reports {
			reports = append(reports, netv1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: one}})
		}
		var a Agents
		if row.set != nil {
			a = AgentsOf(row.set)
		}
		got := a.Unreported(row.nodes, reports, now)
		left := time.Duration(0)
		if !got.Until.IsZero() {
			left = got.Until.Sub(now)
		}
		if fmt.Sprint(got.Awaited) != row.awaited || fmt.Sprint(got.Others) != row.others || left != row.left {
			t.Errorf("%s: awaited %v for %s, others %v; want %s for %s, others %s", name, got.Awaited, left, got.Others, row.awaited, row.left, row.others)
		}
	}
	set := agents(time.Hour, time.Hour)
	set.Spec.Template.Spec.NodeSelector = nil
	if u := AgentsOf(set).Unreported([]corev1.Node{node("a", time.Second, func(node *corev1.Node) { node.Labels = nil })}, nil, now); len(u.Awaited) != 1 {
		t.Errorf("a DaemonSet that selects every node: %+v", u)
	}
}
