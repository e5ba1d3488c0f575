// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"liqo.io/liqo/deployments/liqo/charttest"
)

// TestPullSecrets: the pods of every workload and hook of the chart, and those that the controller manager makes, get the pull Secrets; by default none.
func TestPullSecrets(t *testing.T) {
	for _, test := range []struct {
		set  []string
		want []any
		args []string
	}{
		{nil, nil, nil},
		{
			[]string{"imagePullSecrets[0].name=registry", "imagePullSecrets[1].name=mirror.example"},
			[]any{map[string]any{"name": "registry"}, map[string]any{"name": "mirror.example"}},
			[]string{"--image-pull-secret=registry", "--image-pull-secret=mirror.example"},
		},
	} {
		var workloads []string
		for _, object := range charttest.Render(t, test.set...) {
			spec, has, err := unstructured.NestedMap(object.Object, "spec", "template", "spec")
			if err != nil || !has {
				continue
			}
			workloads = append(workloads, object.GetName())
			if have, _ := spec["imagePullSecrets"].([]any); !reflect.DeepEqual(have, test.want) {
				t.Errorf("%v: %s %s has the pull Secrets %v", test.set, object.GetKind(), object.GetName(), have)
			}
		}
		slices.Sort(workloads)
		want := []string{
			"liqo-auth", "liqo-cleanup", "liqo-controller-manager", "liqo-crds", "liqo-dns", "liqo-gateway", "liqo-metric-agent", "liqo-proxy",
			"liqo-route",
		}
		if !slices.Equal(workloads, want) {
			t.Errorf("the chart has the workloads %v, want %v", workloads, want)
		}
		manager := charttest.Find(t, charttest.Render(t, test.set...), "Deployment", "liqo-controller-manager")
		containers, _, _ := unstructured.NestedSlice(manager.Object, "spec", "template", "spec", "containers")
		var args []string
		for _, argument := range containers[0].(map[string]any)["args"].([]any) {
			if text, ok := argument.(string); ok && len(text) > 19 && text[:19] == "--image-pull-secret" {
				args = append(args, text)
			}
		}
		if !slices.Equal(args, test.args) {
			t.Errorf("%v: arguments of the controller manager %v, want %v", test.set, args, test.args)
		}
	}
	for _, wrong := range []string{"imagePullSecrets[0].name=A_B", "imagePullSecrets[0]=registry", "imagePullSecrets[0].secret=registry"} {
		if _, err := charttest.TryRender(t, nil, wrong); err == nil {
			t.Errorf("%s was accepted", wrong)
		}
	}
}
