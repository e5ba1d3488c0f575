// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/liqo/apis/labels"
	offloadingv1alpha1 "liqo.io/liqo/apis/offloading/v1alpha1"
	vkv1alpha1 "liqo.io/liqo/apis/virtualkubelet/v1alpha1"
	"liqo.io/liqo/internal/offloading/controllertest"
	"liqo.io/liqo/internal/offloading/provider"
)

// TestMapping: which namespaces have a remote namespace, and which may not use the API server; an invalid annotation means no.
func TestMapping(t *testing.T) {
	offloading := func(namespace string, annotations map[string]string) offloadingv1alpha1.NamespaceOffloading {
		made := offloadingv1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "offloading", Annotations: annotations}}
		made.Status.RemoteNamespaceName = namespace + "-rome"
		return made
	}
	support := func(value string) map[string]string { return map[string]string{labels.APIServerSupport: value} }
	deleted, unnamed, other, elsewhere := offloading("deleted", support("false")), offloading("unnamed", support("false")),
		offloading("other", support("false")), offloading("elsewhere", support("false"))
	deleted.DeletionTimestamp = &metav1.Time{}
	unnamed.Status.RemoteNamespaceName = ""
	other.Name = "mine"
	elsewhere.Spec.ClusterSelector.NodeSelectorTerms = []corev1.NodeSelectorTerm{controllertest.Term("region", corev1.NodeSelectorOpIn, "asia")}
	all := []offloadingv1alpha1.NamespaceOffloading{
		offloading("vault", support("false")), offloading("typo", support("False")), offloading("empty", support("")),
		offloading("shop", support("true")), offloading("web", nil),
		offloading("notes", map[string]string{"other": "false"}), deleted, unnamed, other, elsewhere,
	}
	all[0].Spec.Reflection = offloadingv1alpha1.ReflectReferenced
	all[3].Spec.RunWithout = []offloadingv1alpha1.PodField{"runtimeClassName", "os"}
	for _, i := range []int{1, 6, 9} { // of these, only the first one is mapped
		all[i].Spec.UnreachableTolerationSeconds = new(int64(3600))
	}
	spec := mapping(all, &provider.Provider{Node: controllertest.NodeWith(map[string]string{"region": "europe"})}, nil)
	mapped := map[string]string{
		"vault": "vault-rome", "typo": "typo-rome", "empty": "empty-rome", "shop": "shop-rome", "web": "web-rome", "notes": "notes-rome",
	}
	if diff := cmp.Diff(mapped, spec.DesiredMapping); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"empty", "typo", "vault"}, spec.WithoutAPIServer); diff != "" {
		t.Errorf("without the API server (-want +got)\n%s", diff)
	}
	if !slices.Equal(spec.ReferencedOnly, []string{"vault"}) {
		t.Errorf("only what is referenced: %v", spec.ReferencedOnly)
	}
	if diff := cmp.Diff(map[string][]string{"shop": {"runtimeClassName", "os"}}, spec.RunWithout); diff != "" {
		t.Errorf("what pods may lack (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"typo": 3600}, spec.UnreachableTolerationSeconds); diff != "" {
		t.Errorf("tolerated (-want +got)\n%s", diff)
	}
	bounded := &provider.Provider{
		Node: controllertest.NodeWith(map[string]string{"region": "europe"}), Namespaces: &vkv1alpha1.NamespaceMap{},
		Allows: func(namespace string) (allowed, known bool) {
			return namespace == "shop", namespace != "web" && namespace != "notes"
		},
	}
	bounded.Namespaces.Spec.DesiredMapping = map[string]string{"vault": "vault-rome", "web": "web-rome"}
	if spec = mapping(all, bounded, nil); !maps.Equal(spec.DesiredMapping, map[string]string{"shop": "shop-rome", "web": "web-rome"}) {
		t.Errorf("a provider that may receive shop, and of which web and notes are unknown, gets %v", spec.DesiredMapping)
	}
	leaving := &provider.Provider{Node: controllertest.NodeWith(nil), Leaving: true, Namespaces: &vkv1alpha1.NamespaceMap{}}
	leaving.Namespaces.Spec.DesiredMapping = map[string]string{"vault": "vault-rome"}
	if spec = mapping(all, leaving, nil); len(spec.DesiredMapping) != 1 || !slices.Equal(spec.WithoutAPIServer, []string{"vault"}) {
		t.Errorf("while the provider leaves: %+v", spec)
	}
}

// TestReflectedKinds: the status of custom resources comes back from one cluster at most.
func TestReflectedKinds(t *testing.T) {
	for _, test := range []struct {
		statusFrom string
		elsewhere  bool
		want       bool
	}{
		{"", false, true},
		{"", true, false},
		{"liqo-milan", false, true},
		{"liqo-milan", true, true},
		{"liqo-turin", false, false},
		{offloadingv1alpha1.StatusFromNone, false, false},
	} {
		all := []offloadingv1alpha1.NamespaceOffloading{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"}}}
		all[0].Status.RemoteNamespaceName = "shop-rome"
		all[0].Spec.CustomResources = []offloadingv1alpha1.CustomResource{{APIVersion: "example.com/v1", Kind: "Widget", StatusFrom: test.statusFrom}}
		spec := mapping(all, &provider.Provider{NodeName: "liqo-milan", Node: controllertest.NodeWith(nil)}, func(string) bool { return test.elsewhere })
		want := map[string][]vkv1alpha1.ReflectedKind{"shop": {{APIVersion: "example.com/v1", Kind: "Widget", Status: test.want}}}
		if diff := cmp.Diff(want, spec.CustomResources); diff != "" {
			t.Errorf("from %q, elsewhere %v (-want +got)\n%s", test.statusFrom, test.elsewhere, diff)
		}
	}
}
