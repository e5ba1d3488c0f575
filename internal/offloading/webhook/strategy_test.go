// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

const (
	in, notIn = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn
)

func is(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func term(all ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: all}
}

func terms(all ...corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm { return all }

// TestPlace compares with the documented result, term by term.
func TestPlace(t *testing.T) {
	virtual, real := is("liqo.io/type", in, "virtual-node"), is("liqo.io/type", notIn, "virtual-node")
	europe, gold := is("region", in, "europe"), is("tier", in, "gold", "silver")
	disk, arch := is("disk", corev1.NodeSelectorOpExists), is("arch", in, "arm64")
	named := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{is("metadata.name", in, "worker")}}
	toleration := corev1.Toleration{Key: "virtual-node.liqo.io/not-allowed", Operator: "Exists", Effect: "NoExecute"}
	for name, test := range map[string]struct {
		strategy offloadingv1alpha1.PodOffloadingStrategy
		selector []corev1.NodeSelectorTerm
		pod      []corev1.NodeSelectorTerm
		want     []corev1.NodeSelectorTerm
		same     bool
	}{
		"local":            {strategy: "Local", selector: terms(term(europe)), pod: terms(term(disk)), want: terms(term(disk)), same: true},
		"remote":           {strategy: "Remote", want: terms(term(virtual))},
		"remote, selector": {strategy: "Remote", selector: terms(term(europe)), want: terms(term(europe, virtual))},
		"remote, two terms": {
			strategy: "Remote", selector: terms(term(europe), term(gold, disk)), want: terms(term(europe, virtual), term(gold, disk, virtual)),
		},
		"both":           {strategy: "LocalAndRemote"},
		"both, selector": {strategy: "LocalAndRemote", selector: terms(term(europe)), want: terms(term(europe, virtual), term(real))},
		"both, two terms": {
			strategy: "LocalAndRemote", selector: terms(term(europe), term(gold)),
			want: terms(term(europe, virtual), term(gold, virtual), term(real)),
		},
		"both, the pod has its own":   {strategy: "LocalAndRemote", pod: terms(term(disk)), want: terms(term(disk))},
		"remote, the pod has its own": {strategy: "Remote", pod: terms(term(disk)), want: terms(term(disk, virtual))},
		"remote, the pod names a node": {
			strategy: "Remote", pod: terms(named),
			want: terms(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{virtual}, MatchFields: named.MatchFields}),
		},
		"remote, two and two": {
			strategy: "Remote", selector: terms(term(europe), term(gold)), pod: terms(term(disk), term(arch)),
			want: terms(term(disk, europe, virtual), term(disk, gold, virtual), term(arch, europe, virtual), term(arch, gold, virtual)),
		},
		"both, two and one": {
			strategy: "LocalAndRemote", selector: terms(term(europe)), pod: terms(term(disk), term(arch)),
			want: terms(term(disk, europe, virtual), term(disk, real), term(arch, europe, virtual), term(arch, real)),
		},
		"a term that fits nothing":         {strategy: "Remote", selector: terms(term(), term(europe)), want: terms(term(europe, virtual))},
		"only terms that fit nothing":      {strategy: "Remote", selector: terms(term()), want: terms(term(virtual, real))},
		"both, terms that fit nothing":     {strategy: "LocalAndRemote", selector: terms(term()), want: terms(term(real))},
		"the pod's term that fits nothing": {strategy: "Remote", pod: terms(term(), term(disk)), want: terms(term(disk, virtual))},
		"the pod fits nothing":             {strategy: "Remote", pod: terms(term()), want: terms(term(virtual, real))},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: test.strategy}
			spec.ClusterSelector.NodeSelectorTerms = test.selector
			before := spec.DeepCopy()
			other := corev1.Toleration{Key: "other", Operator: "Exists"}
			preferred := []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: term(arch)}}
			pod := &corev1.PodSpec{Tolerations: []corev1.Toleration{other}}
			if test.pod != nil {
				pod.Affinity = &corev1.Affinity{
					PodAffinity: &corev1.PodAffinity{},
					NodeAffinity: &corev1.NodeAffinity{
						PreferredDuringSchedulingIgnoredDuringExecution: preferred,
						RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: test.pod},
					},
				}
			}
			untouched := pod.DeepCopy()
			if changed := place(pod, spec); changed == test.same {
				t.Errorf("changed: %t", changed)
			}
			if test.same {
				if diff := cmp.Diff(untouched, pod); diff != "" {
					t.Error(diff)
				}
				return
			}
			if diff := cmp.Diff([]corev1.Toleration{other, toleration}, pod.Tolerations); diff != "" {
				t.Errorf("tolerations: %s", diff)
			}
			var got []corev1.NodeSelectorTerm
			if pod.Affinity != nil {
				if got = pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; test.pod != nil {
					if diff := cmp.Diff(preferred, pod.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution); diff != "" || pod.Affinity.PodAffinity == nil {
						t.Errorf("the rest of the affinity: %s", diff)
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("terms (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(before, spec); diff != "" {
				t.Errorf("the spec itself was changed: %s", diff)
			}
		})
	}
}

// TestPlaceAvoids: a pod does not go to the nodes of clusters that do not run it. Nodes of this cluster are none of them.
func TestPlaceAvoids(t *testing.T) {
	virtual, real, europe := is("liqo.io/type", in, "virtual-node"), is("liqo.io/type", notIn, "virtual-node"), is("region", in, "europe")
	avoids := func(all ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{
			MatchExpressions: all,
			MatchFields:      []corev1.NodeSelectorRequirement{is("metadata.name", notIn, "liqo-milan"), is("metadata.name", notIn, "liqo-turin")},
		}
	}
	for name, test := range map[string]struct {
		strategy      offloadingv1alpha1.PodOffloadingStrategy
		selector, own []corev1.NodeSelectorTerm
		want          []corev1.NodeSelectorTerm
	}{
		"remote":              {strategy: "Remote", want: terms(avoids(virtual))},
		"remote, selector":    {strategy: "Remote", selector: terms(term(europe)), want: terms(avoids(europe, virtual))},
		"both":                {strategy: "LocalAndRemote", want: terms(avoids())},
		"both, selector":      {strategy: "LocalAndRemote", selector: terms(term(europe)), want: terms(avoids(europe, virtual), term(real))},
		"both, and its own":   {strategy: "LocalAndRemote", own: terms(term(europe)), want: terms(avoids(europe))},
		"local, which is all": {strategy: "Local"},
	} {
		spec := &offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: test.strategy}
		spec.ClusterSelector.NodeSelectorTerms = test.selector
		pod := &corev1.PodSpec{}
		if test.own != nil {
			nodeAffinity(pod).RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: test.own}
		}
		place(pod, spec, "liqo-milan", "liqo-turin")
		once := pod.DeepCopy()
		if again := place(pod, spec, "liqo-milan", "liqo-turin"); again || !cmp.Equal(once, pod) {
			t.Errorf("%s: changed by the second call: %s", name, cmp.Diff(once, pod))
		}
		var got []corev1.NodeSelectorTerm
		if pod.Affinity != nil {
			got = pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// TestAvoids: a pod that fits no other node waits where it would run once the cluster is chosen. One for a certain node goes there.
func TestAvoids(t *testing.T) {
	node := func(name, kind string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"liqo.io/type": kind, corev1.LabelHostname: name}}}
	}
	var run []string
	hook := &pods{options: Options{
		Cached: fake.NewClientBuilder().WithObjects(node("worker", ""), node("liqo-milan", "virtual-node"), node("liqo-turin", "virtual-node")).Build(),
		Places: func(context.Context, *offloadingv1alpha1.NamespaceOffloading) ([]string, []string, error) {
			return run, []string{"liqo-milan"}, nil
		},
	}}
	found := func(reason string) (status offloadingv1alpha1.NamespaceOffloadingStatus) {
		required := offloadingv1alpha1.RemoteNamespaceCondition{Type: offloadingv1alpha1.ConditionOffloadingRequired, Status: corev1.ConditionTrue}
		if reason == offloadingv1alpha1.ReasonClusterNotSelected {
			required.Status = corev1.ConditionFalse
		}
		status.RemoteNamespacesConditions = map[string]offloadingv1alpha1.RemoteNamespaceConditions{
			"milan": {required, {Type: offloadingv1alpha1.ConditionReady, Status: corev1.ConditionTrue, Reason: reason}},
		}
		return status
	}
	both, remote := offloadingv1alpha1.PodsLocalAndRemote, offloadingv1alpha1.PodsRemote
	virtual, milan := corev1.PodSpec{NodeSelector: map[string]string{"liqo.io/type": "virtual-node"}},
		corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: "liqo-milan"}}
	turin := []string{"liqo-turin"}
	for name, test := range map[string]struct {
		strategy offloadingv1alpha1.PodOffloadingStrategy
		pod      corev1.PodSpec
		run      []string
		status   offloadingv1alpha1.NamespaceOffloadingStatus
		avoids   bool
	}{
		"runs here":             {strategy: both, avoids: true},
		"runs here or in turin": {strategy: both, run: turin, avoids: true},
		"wants another cluster, and there is none": {strategy: both, pod: virtual},
		"wants another cluster":                    {strategy: both, pod: virtual, run: turin, avoids: true},
		"wants milan":                              {strategy: both, pod: milan, run: turin},
		"must leave, and no cluster is chosen":     {strategy: remote},
		"must leave":                               {strategy: remote, run: turin, avoids: true},
		"stays here":                               {strategy: offloadingv1alpha1.PodsLocal, run: turin},
		"has a node":                               {strategy: both, pod: corev1.PodSpec{NodeName: "liqo-milan"}, run: turin},
		"every cluster is chosen":                  {strategy: both, status: found(offloadingv1alpha1.ReasonClusterSelected)},
		"one is not chosen":                        {strategy: both, status: found(offloadingv1alpha1.ReasonClusterNotSelected), avoids: true},
		"one refuses":                              {strategy: both, status: found(offloadingv1alpha1.ReasonCreationLoopBackOff), avoids: true},
	} {
		run = test.run
		of := &offloadingv1alpha1.NamespaceOffloading{Spec: offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: test.strategy}, Status: test.status}
		got, err := hook.avoided(t.Context(), &corev1.Pod{Spec: test.pod}, of)
		if err != nil || (len(got) == 1) != test.avoids {
			t.Errorf("%s: avoids %v, %v", name, got, err)
		}
	}
}

// TestPlaceTwice: the second time changes nothing.
func TestPlaceTwice(t *testing.T) {
	for _, strategy := range []offloadingv1alpha1.PodOffloadingStrategy{offloadingv1alpha1.PodsLocalAndRemote, offloadingv1alpha1.PodsRemote} {
		for _, selector := range [][]corev1.NodeSelectorTerm{nil, terms(term(is("region", in, "europe")), term(is("tier", in, "gold"))), terms(term())} {
			for _, own := range [][]corev1.NodeSelectorTerm{nil, terms(term(is("disk", in, "ssd")), term(is("arch", in, "arm64"))), terms(term())} {
				spec := &offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy, ClusterSelector: corev1.NodeSelector{NodeSelectorTerms: selector}}
				pod := &corev1.PodSpec{}
				if own != nil {
					pod.Affinity = &corev1.Affinity{
						NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: own}},
					}
				}
				first := place(pod, spec)
				once := pod.DeepCopy()
				if second := place(pod, spec); !first || second || !cmp.Equal(once, pod) {
					t.Errorf("%s, selector %v, own %v: changed %t, then %t to %+v", strategy, selector, own, first, second, pod)
				}
			}
		}
	}
}

// TestOnlyVirtual: a pod that its user wants in other clusters only is not kept here by its claims.
func TestOnlyVirtual(t *testing.T) {
	virtual, real, disk := is("liqo.io/type", in, "virtual-node"), is("liqo.io/type", notIn, "virtual-node"), is("disk", in, "ssd")
	own := func(all ...corev1.NodeSelectorTerm) corev1.PodSpec {
		return corev1.PodSpec{
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: all}}},
		}
	}
	for name, test := range map[string]struct {
		pod      corev1.PodSpec
		strategy offloadingv1alpha1.PodOffloadingStrategy
		want     bool
	}{
		"nothing chosen": {strategy: "LocalAndRemote"},
		"the strategy":   {strategy: "Remote", want: true},
		"a node selector": {
			pod: corev1.PodSpec{NodeSelector: map[string]string{"liqo.io/type": "virtual-node"}}, strategy: "LocalAndRemote", want: true,
		},
		"another node selector":               {pod: corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, strategy: "LocalAndRemote"},
		"the node itself":                     {pod: corev1.PodSpec{NodeName: "liqo-milan"}, strategy: "LocalAndRemote", want: true},
		"affinity to virtual nodes":           {pod: own(term(disk, virtual), term(virtual)), strategy: "LocalAndRemote", want: true},
		"the label exists":                    {pod: own(term(is("liqo.io/type", corev1.NodeSelectorOpExists))), strategy: "LocalAndRemote", want: true},
		"the label does not exist":            {pod: own(term(is("liqo.io/type", corev1.NodeSelectorOpDoesNotExist))), strategy: "LocalAndRemote"},
		"several values of the label":         {pod: own(term(is("liqo.io/type", in, "virtual-node", "other"))), strategy: "LocalAndRemote"},
		"to virtual nodes, or to one of ours": {pod: own(term(virtual), term(disk)), strategy: "LocalAndRemote"},
		"to real nodes":                       {pod: own(term(real)), strategy: "LocalAndRemote"},
		"preferred ones only": {pod: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: term(virtual)}},
		}}}, strategy: "LocalAndRemote"},
	} {
		if got := onlyVirtual(&test.pod, &offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: test.strategy}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestAvoidVirtualNodesTwice: the second time changes nothing.
func TestAvoidVirtualNodesTwice(t *testing.T) {
	for _, own := range [][]corev1.NodeSelectorTerm{nil, terms(term(is("disk", in, "ssd")), term(is("arch", in, "arm64"))), terms(term())} {
		pod := &corev1.PodSpec{}
		if own != nil {
			pod.Affinity = &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: own}},
			}
		}
		first := avoidVirtualNodes(pod)
		once := pod.DeepCopy()
		if second := avoidVirtualNodes(pod); !first || second || !cmp.Equal(once, pod) {
			t.Errorf("own %v: changed %t, then %t to %+v", own, first, second, pod)
		}
	}
}

// TestTooMuch: two users whose objects the API server accepts must not make us hold the product of both.
func TestTooMuch(t *testing.T) {
	with := func(own []corev1.NodeSelectorTerm) *corev1.PodSpec {
		return &corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: own},
		}}}
	}
	many := func(count int, values ...string) (all []corev1.NodeSelectorTerm) {
		for range count {
			all = append(all, term(is("region", in, values...)))
		}
		return all
	}
	long := strings.Repeat("x", 1<<20)
	for name, test := range map[string]struct {
		own, ours []corev1.NodeSelectorTerm
		want      bool
	}{
		"ordinary":               {many(10, "europe"), many(10, "europe"), false},
		"no affinity in the pod": {nil, many(10_000, "europe"), false},
		"many with many":         {many(10_000, "europe"), many(10_000, "europe"), true},
		"one long":               {many(1, long), many(2, "europe"), true},
		"with a long one":        {many(2, "europe"), many(1, long), true},
		"many, empty":            {make([]corev1.NodeSelectorTerm, 100_000), many(100, "europe"), true},
		"more than enough":       {many(40, "europe"), many(40, "europe"), false},
		"many with nothing":      {many(2000, "europe"), nil, false},
	} {
		pod := &corev1.PodSpec{}
		if test.own != nil {
			pod = with(test.own)
		}
		spec := &offloadingv1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1alpha1.PodsRemote}
		spec.ClusterSelector.NodeSelectorTerms = test.ours
		if got := tooMuch(pod, spec); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
