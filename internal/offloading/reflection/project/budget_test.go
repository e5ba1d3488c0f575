// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/offloading/kinds"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// TestBudget: of a budget, the peer gets a number, the selector within the pods of this cluster, and the policy for unhealthy pods. Nothing else of it crosses.
func TestBudget(t *testing.T) {
	local := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "x"},
			Finalizers: []string{"example.org/x"},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromString("34%")), UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
			Selector: &metav1.LabelSelector{
				MatchLabels:      map[string]string{"app": "web", "virtualkubelet.liqo.io/origin": "paris"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"batch"}}},
			},
		},
	}
	text, err := yaml.Marshal(kinds.Budget(mapping, local, 2))
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  labels:
    virtualkubelet.liqo.io/destination: 7c2d11ee-milan
    virtualkubelet.liqo.io/origin: 1f0b9a3c-rome
  name: web
  namespace: shop-rome-ab12cd
spec:
  minAvailable: 2
  selector:
    matchExpressions:
    - key: tier
      operator: NotIn
      values:
      - batch
    matchLabels:
      app: web
      virtualkubelet.liqo.io/origin: 1f0b9a3c-rome
  unhealthyPodEvictionPolicy: AlwaysAllow
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
	// A field that a new release of Kubernetes adds needs a decision.
	known := []string{"maxUnavailable", "minAvailable", "selector", "unhealthyPodEvictionPolicy"}
	if got := slices.Sorted(slices.Values(fieldNames(policyv1.PodDisruptionBudgetSpec{}))); !slices.Equal(got, known) {
		t.Errorf("a budget has the fields %v, known are %v", got, known)
	}
}

// TestDoubtful: keys in domains that only some providers let pods have are in doubt, and those that the user leaves out.
func TestDoubtful(t *testing.T) {
	without := mapping
	without.Skip = project.Denied{Labels: project.Keys{"internal"}}
	for name, row := range map[string]struct {
		mapping  project.NamespaceMapping
		selector *metav1.LabelSelector
		want     string
	}{
		"none":  {mapping, nil, ""},
		"empty": {mapping, &metav1.LabelSelector{}, ""},
		"plain": {mapping, &metav1.LabelSelector{MatchLabels: map[string]string{
			"app": "x", "app.kubernetes.io/name": "x",
			"statefulset.kubernetes.io/pod-name": "x",
		}}, ""},
		"of an operator": {mapping, &metav1.LabelSelector{MatchLabels: map[string]string{"cnpg.io/cluster": "x", "app": "x"}}, "cnpg.io/cluster"},
		"by an expression": {mapping, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "b.example/x"},
			{Key: "a.example/x"},
			{Key: "b.example/x"},
		}}, "a.example/x b.example/x"},
		"of Liqo":  {mapping, &metav1.LabelSelector{MatchLabels: map[string]string{"liqo.io/x": "x"}}, "liqo.io/x"},
		"left out": {without, &metav1.LabelSelector{MatchLabels: map[string]string{"internal": "x"}}, "internal"},
	} {
		if got := strings.Join(kinds.Doubtful(row.mapping, row.selector), " "); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// TestLabelsThere: what a pod has in the peer is bounded, whatever the peer invents, and replaces what the pod has here.
func TestLabelsThere(t *testing.T) {
	remote := map[string]string{
		"app": "other", "topology.kubernetes.io/zone": "z", "cnpg.io/cluster": "there", "long.example/x": strings.Repeat("x", 64),
		strings.Repeat("a", 400) + "/x": "x",
	}
	there := kinds.DoubtfulLabels(remote)
	if !maps.Equal(there, map[string]string{"cnpg.io/cluster": "there"}) {
		t.Errorf("kept %v", there)
	}
	got := kinds.LabelsThere(mapping, map[string]string{"app": "web", "cnpg.io/cluster": "here", "cnpg.io/role": "primary"}, there)
	if !maps.Equal(got, map[string]string{"app": "web", "cnpg.io/cluster": "there"}) {
		t.Errorf("labels %v", got)
	}
	for i := range 100 {
		remote[strings.Repeat("a", i+1)+".example/x"] = "x"
	}
	if kept := kinds.DoubtfulLabels(remote); len(kept) != 16 {
		t.Errorf("%d labels are kept", len(kept))
	}
}
