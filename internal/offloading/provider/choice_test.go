// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/controllertest"
)

// TestChooses: a remote namespace is given up only if selector and labels are known.
func TestChooses(t *testing.T) {
	europe, unregistered := controllertest.NodeWith(map[string]string{"region": "europe"}), controllertest.NodeWith(nil)
	delete(unregistered.Labels, corev1.LabelHostname)
	unlabelled := controllertest.NodeWith(nil)
	unlabelled.Status.Conditions = nil
	in := []corev1.NodeSelectorTerm{controllertest.Term("region", corev1.NodeSelectorOpIn, "europe")}
	asia := []corev1.NodeSelectorTerm{controllertest.Term("region", corev1.NodeSelectorOpIn, "asia")}
	notIn := []corev1.NodeSelectorTerm{controllertest.Term("region", corev1.NodeSelectorOpNotIn, "europe")}
	notAsia := []corev1.NodeSelectorTerm{controllertest.Term("region", corev1.NodeSelectorOpNotIn, "asia")}
	broken := []corev1.NodeSelectorTerm{controllertest.Term("region", "Sometimes", "asia")}
	for name, test := range map[string]struct {
		terms            []corev1.NodeSelectorTerm
		node             *corev1.Node
		leaving, deleted bool
		before           bool
		want             bool
		hidden           bool // the labels of the node are not accepted
	}{
		"excluded by a label that is not accepted":     {terms: notIn, node: europe, hidden: true},
		"excluded so later":                            {terms: notIn, node: europe, hidden: true, before: true, want: true},
		"not excluded by a label that is not accepted": {terms: notAsia, node: europe, hidden: true, want: true},
		"not selected by a label that is not accepted": {terms: in, node: europe, hidden: true},
		"all":                           {node: europe, want: true},
		"fits":                          {terms: in, node: europe, want: true},
		"one of two fits":               {terms: append(slices.Clone(asia), in...), node: europe, want: true},
		"does not fit":                  {terms: asia, node: europe, before: true},
		"an empty term fits nothing":    {terms: []corev1.NodeSelectorTerm{{}}, node: europe},
		"no node":                       {terms: in},
		"no node any more":              {terms: asia, before: true, want: true},
		"registered again":              {terms: in, node: unregistered, before: true, want: true},
		"registered for the first time": {terms: in, node: unregistered},
		"without conditions yet":        {terms: in, node: unlabelled, before: true, want: true},
		"invalid":                       {terms: broken, node: europe},
		"invalid now":                   {terms: broken, node: europe, before: true, want: true},
		"draining":                      {node: europe, leaving: true, before: true, want: true},
		"draining, new":                 {node: europe, leaving: true},
		"unoffloaded":                   {node: europe, deleted: true, before: true},
		"unoffloaded while draining":    {node: europe, deleted: true, leaving: true, before: true},
	} {
		offloading := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
		offloading.Spec.ClusterSelector.NodeSelectorTerms = test.terms
		if test.deleted {
			offloading.DeletionTimestamp = &metav1.Time{}
		}
		p := &Provider{Node: test.node, Leaving: test.leaving, Namespaces: &vkv1alpha1.NamespaceMap{}}
		if test.hidden {
			p.Node, p.Labelled, p.Hidden = controllertest.NodeWith(nil), test.node, []string{"region=europe"}
		}
		if test.before {
			p.Namespaces.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
		}
		if got := Chooses(offloading, p); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestPlaces: on which virtual nodes the pods of a namespace run, and on which they would wait although strategy and selector lead there.
func TestPlaces(t *testing.T) {
	offloading := &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
	offloading.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{controllertest.Term("region", corev1.NodeSelectorOpIn, "europe")}
	everywhere := offloading.DeepCopy()
	everywhere.Spec.ClusterSelector.NodeSelectorTerms = nil
	provider := func(change func(*Provider)) Provider {
		p := Provider{NodeName: "liqo-milan", Node: controllertest.NodeWith(map[string]string{"region": "europe"}), Namespaces: &vkv1alpha1.NamespaceMap{}}
		if change != nil {
			change(&p)
		}
		p.Labelled = controllertest.NodeWith(map[string]string{"region": "europe"})
		return p
	}
	answers := func(allowed, known bool) func(*Provider) {
		return func(p *Provider) { p.Allows = func(string) (bool, bool) { return allowed, known } }
	}
	hidden := func(p *Provider) { p.Node, p.Hidden = controllertest.NodeWith(nil), []string{"region=europe"} }
	refused := func(p *Provider) {
		p.Namespaces.Status.CurrentMapping = map[string]vkv1alpha1.RemoteNamespaceStatus{"shop": {Phase: vkv1alpha1.MappingCreationLoopBackOff}}
	}
	unregistered := func(p *Provider) { delete(p.Node.Labels, corev1.LabelHostname) }
	milan := []string{"liqo-milan"}
	for name, test := range map[string]struct {
		of        *offloadingv1alpha1.NamespaceOffloading
		providers []Provider
		run, vain []string
	}{
		"chosen":                                    {of: offloading, providers: []Provider{provider(nil)}, run: milan},
		"its labels are not accepted":               {of: offloading, providers: []Provider{provider(hidden)}, vain: milan},
		"one of two":                                {of: offloading, providers: []Provider{provider(hidden), provider(nil)}, vain: milan, run: milan},
		"no selector":                               {of: everywhere, providers: []Provider{provider(hidden)}, run: milan},
		"it may not receive the namespace":          {of: everywhere, providers: []Provider{provider(answers(false, true))}, vain: milan},
		"it may":                                    {of: everywhere, providers: []Provider{provider(answers(true, true))}, run: milan},
		"whether it may is not known":               {of: everywhere, providers: []Provider{provider(answers(false, false))}},
		"it refuses the remote namespace":           {of: everywhere, providers: []Provider{provider(refused)}, vain: milan},
		"its labels are not known":                  {of: offloading, providers: []Provider{provider(unregistered)}},
		"it is leaving":                             {of: everywhere, providers: []Provider{provider(func(p *Provider) { p.Leaving = true })}},
		"no cluster":                                {of: offloading},
		"excluded by a label which is not accepted": {of: without(everywhere, "region"), providers: []Provider{provider(hidden)}},
	} {
		if run, vain := Places(test.of, test.providers); !slices.Equal(run, test.run) || !slices.Equal(vain, test.vain) {
			t.Errorf("%s: run on %v, wait on %v", name, run, vain)
		}
	}
}

// without returns an offloading that excludes nodes with a label.
func without(of *offloadingv1alpha1.NamespaceOffloading, key string) *offloadingv1alpha1.NamespaceOffloading {
	excluding := of.DeepCopy()
	excluding.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{controllertest.Term(key, corev1.NodeSelectorOpDoesNotExist)}
	return excluding
}
