// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
)

func node(change func(*corev1.Node)) *corev1.Node {
	made := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "liqo-milan", Labels: map[string]string{corev1.LabelHostname: "liqo-milan", "region": "europe"},
			Annotations: map[string]string{labels.ProviderLabels: "region"},
		},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}},
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
		"none":                    {nil, false},
		"provider unreachable":    {node(nil), true},
		"labels of which cluster": {node(func(n *corev1.Node) { n.Annotations = nil }), false},
		"just registered":         {node(func(n *corev1.Node) { n.Labels = nil }), false},
		"without conditions":      {node(func(n *corev1.Node) { n.Status.Conditions = nil }), false},
		"being deleted":           {node(func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} }), false},
	} {
		if got := Settled(test.node); got != test.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}

// TestView: a label of the provider is considered only if this cluster accepts it.
func TestView(t *testing.T) {
	made := node(func(n *corev1.Node) {
		n.Labels = map[string]string{corev1.LabelHostname: "liqo-milan", "mine": "1", "trust": "high", "topology.liqo.io/region": "eu", "liqo.io/provider": "k3s"}
		n.Annotations[labels.ProviderLabels] = "trust,topology.liqo.io/region,liqo.io/provider,gone"
	})
	for what, test := range map[string]struct {
		accepted, hidden []string
	}{
		"default":       {nil, []string{"trust=high"}},
		"none":          {[]string{}, []string{"liqo.io/provider=k3s", "topology.liqo.io/region=eu", "trust=high"}},
		"all":           {[]string{"*"}, nil},
		"key":           {[]string{"trust"}, []string{"liqo.io/provider=k3s", "topology.liqo.io/region=eu"}},
		"value":         {[]string{"trust=high", "liqo.io/provider=gke"}, []string{"liqo.io/provider=k3s", "topology.liqo.io/region=eu"}},
		"prefix":        {[]string{"topology.liqo.io/*", "liqo.io/*"}, []string{"trust=high"}},
		"not a prefix":  {[]string{"tr*"}, []string{"liqo.io/provider=k3s", "topology.liqo.io/region=eu", "trust=high"}},
		"part of a key": {[]string{"tru", "topology.liqo.io"}, []string{"liqo.io/provider=k3s", "topology.liqo.io/region=eu", "trust=high"}},
	} {
		view, hidden := View(made, test.accepted)
		if !slices.Equal(hidden, test.hidden) {
			t.Errorf("%s: hidden %v, want %v", what, hidden, test.hidden)
		}
		if len(view.Labels) != len(made.Labels)-len(hidden) || view.Labels["mine"] != "1" {
			t.Errorf("%s: %v", what, view.Labels)
		}
	}
	if len(made.Labels) != 5 {
		t.Error("the node was changed")
	}
	if view, hidden := View(nil, nil); view != nil || hidden != nil {
		t.Error("a node that does not exist has a view")
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

// TestNamed: a message names the labels that matter to a selector, and no other that a provider has made up.
func TestNamed(t *testing.T) {
	selector := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "region", Operator: corev1.NodeSelectorOpIn, Values: []string{"B"}}}},
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "tier", Operator: corev1.NodeSelectorOpExists}}},
	}}
	if got := Named(selector, []string{"provider=AWS", "region=C", "region2=B", "tier="}); !slices.Equal(got, []string{"region=C", "tier="}) {
		t.Errorf("%v", got)
	}
	if got := Accepted(nil); len(got) != len(byDefault) || len(Accepted([]string{})) != 0 {
		t.Errorf("a missing list is %v, and an empty one is not", got)
	}
	if got := AcceptCommand("milan", []string{"region=C", "tier="}); got != "liqoctl accept labels milan region=C tier=" {
		t.Error(got)
	}
}
