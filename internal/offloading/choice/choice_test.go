// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(change func(*corev1.Node)) *corev1.Node {
	made := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-milan", Labels: map[string]string{corev1.LabelHostname: "liqo-milan", "region": "europe"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}},
	}
	if change != nil {
		change(made)
	}
	return made
}

func TestSettled(t *testing.T) {
	for what, test := range map[string]struct {
		node *corev1.Node
		want bool
	}{
		"none":                 {nil, false},
		"provider unreachable": {node(nil), true},
		"just registered":      {node(func(n *corev1.Node) { n.Labels = nil }), false},
		"without conditions":   {node(func(n *corev1.Node) { n.Status.Conditions = nil }), false},
		"being deleted":        {node(func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }), false},
	} {
		if got := Settled(test.node); got != test.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}

func TestFits(t *testing.T) {
	term := func(operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "region", Operator: operator, Values: values}}}
	}
	for what, test := range map[string]struct {
		terms      []corev1.NodeSelectorTerm
		want, fail bool
	}{
		"no terms":                   {nil, true, false},
		"fits":                       {[]corev1.NodeSelectorTerm{term("In", "europe")}, true, false},
		"fits not":                   {[]corev1.NodeSelectorTerm{term("In", "asia")}, false, false},
		"one of two":                 {[]corev1.NodeSelectorTerm{term("In", "asia"), term("Exists")}, true, false},
		"an empty term fits nothing": {[]corev1.NodeSelectorTerm{{}}, false, false},
		"nonsense":                   {[]corev1.NodeSelectorTerm{term("Sometimes", "asia")}, false, true},
	} {
		got, err := Fits(&corev1.NodeSelector{NodeSelectorTerms: test.terms}, node(nil))
		if got != test.want || (err != nil) != test.fail {
			t.Errorf("%s: %t, %v", what, got, err)
		}
	}
}
