// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
)

func support(value string) func(*offloadingv1alpha1.NamespaceOffloading) {
	return func(offloading *offloadingv1alpha1.NamespaceOffloading) {
		offloading.Annotations = map[string]string{labels.APIServerSupport: value}
	}
}

func TestValidate(t *testing.T) {
	made := func(change func(*offloadingv1alpha1.NamespaceOffloading)) *offloadingv1alpha1.NamespaceOffloading {
		offloading := &offloadingv1alpha1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"},
			Spec:       offloadingv1alpha1.NamespaceOffloadingSpec{NamespaceMappingStrategy: "DefaultName", PodOffloadingStrategy: "LocalAndRemote"},
		}
		if change != nil {
			change(offloading)
		}
		return offloading
	}
	for name, test := range map[string]struct {
		change func(*offloadingv1alpha1.NamespaceOffloading)
		update bool
		want   string
	}{
		"good": {},
		"good change": {func(offloading *offloadingv1alpha1.NamespaceOffloading) {
			offloading.Spec.PodOffloadingStrategy = "Remote"
		}, true, ""},
		"its name":   {func(offloading *offloadingv1alpha1.NamespaceOffloading) { offloading.Name = "mine" }, false, `must be called "offloading"`},
		"the system": {func(offloading *offloadingv1alpha1.NamespaceOffloading) { offloading.Namespace = "kube-system" }, false, "belongs to Kubernetes"},
		"Liqo":       {func(offloading *offloadingv1alpha1.NamespaceOffloading) { offloading.Namespace = "liqo" }, false, "belongs to Kubernetes"},
		"a tenant":   {func(offloading *offloadingv1alpha1.NamespaceOffloading) { offloading.Namespace = "liqo-tenant-milan-1" }, false, "belongs to Kubernetes"},
		"volumes":    {func(offloading *offloadingv1alpha1.NamespaceOffloading) { offloading.Namespace = "liqo-storage" }, false, ""},
		"another mapping": {func(offloading *offloadingv1alpha1.NamespaceOffloading) {
			offloading.Spec.NamespaceMappingStrategy = "EnforceSameName"
		}, true, "cannot be changed from DefaultName to EnforceSameName"},
		"an empty term": {func(offloading *offloadingv1alpha1.NamespaceOffloading) {
			offloading.Spec.ClusterSelector.NodeSelectorTerms = terms(term(is("a", in, "b")), term())
		}, false, "nodeSelectorTerms[1] is empty"},
		"an unknown operator": {func(offloading *offloadingv1alpha1.NamespaceOffloading) {
			offloading.Spec.ClusterSelector.NodeSelectorTerms = terms(term(is("a", "Like", "b")))
		}, false, "Like"},
		"no values": {func(offloading *offloadingv1alpha1.NamespaceOffloading) {
			offloading.Spec.ClusterSelector.NodeSelectorTerms = terms(term(is("a", in)))
		}, true, "is invalid"},
		"values too many": {func(offloading *offloadingv1alpha1.NamespaceOffloading) {
			offloading.Spec.ClusterSelector.NodeSelectorTerms = terms(term(is("a", "Exists", "b")))
		}, false, "is invalid"},
		"no label": {func(offloading *offloadingv1alpha1.NamespaceOffloading) {
			offloading.Spec.ClusterSelector.NodeSelectorTerms = terms(term(is("a b", in, "b")))
		}, false, "is invalid"},
		"with the API server":    {support("true"), true, ""},
		"without the API server": {support("false"), true, ""},
		"perhaps":                {support("maybe"), false, `annotation liqo.io/apiserver-support has the invalid value "maybe"; set it to "true" or "false"`},
		"empty":                  {support(""), true, `invalid value ""`},
		"nearly":                 {support("False"), true, `invalid value "False"`},
		"being deleted": {func(offloading *offloadingv1alpha1.NamespaceOffloading) {
			offloading.DeletionTimestamp, offloading.Spec.ClusterSelector.NodeSelectorTerms = &metav1.Time{}, terms(term())
			support("maybe")(offloading)
		}, true, ""},
	} {
		var was *offloadingv1alpha1.NamespaceOffloading
		if test.update {
			was = made(nil)
		}
		got := (&offloadings{options: Options{Namespace: "liqo"}}).validate(was, made(test.change))
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	for change, want := range map[[2]offloadingv1alpha1.PodOffloadingStrategy]int{
		{"Local", "Local"}: 0, {"Local", "LocalAndRemote"}: 0, {"Remote", "LocalAndRemote"}: 0,
		{"LocalAndRemote", "Local"}: 1, {"LocalAndRemote", "Remote"}: 1, {"Remote", "Local"}: 1, {"Local", "Remote"}: 1,
	} {
		was, is := &offloadingv1alpha1.NamespaceOffloading{}, &offloadingv1alpha1.NamespaceOffloading{}
		was.Spec.PodOffloadingStrategy, is.Spec.PodOffloadingStrategy = change[0], change[1]
		if got := warnings(was, is); len(got) != want {
			t.Errorf("%v: %v", change, got)
		}
	}
	if got := warnings(nil, &offloadingv1alpha1.NamespaceOffloading{}); len(got) > 0 {
		t.Errorf("new: %v", got)
	}
}

// TestAdmittedVersions: the cache is current when it has the admitted version, or when that version cannot arrive any more.
func TestAdmittedVersions(t *testing.T) {
	now := time.Now()
	object := func(uid types.UID, generation int64) *offloadingv1alpha1.NamespaceOffloading {
		return &offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", UID: uid, Generation: generation}}
	}
	for name, test := range map[string]struct {
		cached *offloadingv1alpha1.NamespaceOffloading
		later  time.Duration
		want   bool
	}{
		"old version":      {object("new", 1), 0, false},
		"object of before": {object("old", 7), 0, false},
		"same version":     {object("new", 2), 0, true},
		"newer":            {object("new", 3), 0, true},
		"never stored":     {object("new", 1), cacheDelay + time.Second, true},
	} {
		n := &admittedVersions{all: map[string]version{}}
		if !n.current(test.cached, now) {
			t.Errorf("%s: stale although nothing was admitted", name)
		}
		n.record(object("new", 2), now)
		for range 2 {
			if got := n.current(test.cached, now.Add(test.later)); got != test.want {
				t.Errorf("%s: %t", name, got)
			}
		}
	}
}
