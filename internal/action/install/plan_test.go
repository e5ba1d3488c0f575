// SPDX-License-Identifier: Apache-2.0

package install

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/install/clusters"
)

// TestPlan: everything that a plan holds becomes a value of the chart.
func TestPlan(t *testing.T) {
	for want, plan := range map[string]clusters.Plan{
		"10.244.0.0/16 10.96.0.0/12 https://192.0.2.10:6443 - - insecure watch": {
			PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/12", APIServer: "https://192.0.2.10:6443", SelfSignedKubelets: true, WatchPods: true,
		},
		"10.200.0.0/16 10.80.0.0/12 - NodePort kind": {
			PodCIDR: "10.200.0.0/16", ServiceCIDR: "10.80.0.0/12", APIServer: "https://127.0.0.1:41873", ServiceType: "NodePort",
			Labels: map[string]string{labels.Provider: "kind"},
		},
	} {
		if have := chosen(t, plan, clusters.Overrides{ClusterName: "rome"}); have != want {
			t.Errorf("%+v:\n%s, want\n%s", plan, have, want)
		}
	}
}

// chosen returns what the values of the chart are for a plan.
func chosen(t *testing.T, plan clusters.Plan, overrides clusters.Overrides) string {
	t.Helper()
	p := &Prepared{Plan: plan, options: Options{Overrides: overrides}}
	values, err := plainValues(p.values(map[string]any{}))
	if err != nil {
		t.Fatal(err)
	}
	text := func(path ...string) string {
		found, _, _ := unstructured.NestedString(values, path...)
		if found == "" {
			return "-"
		}
		return found
	}
	serviceType := text("auth", "service", "type")
	if other := text("gateway", "service", "type"); other != serviceType {
		t.Errorf("Services of gateways are %s, those of the authentication service %s", other, serviceType)
	}
	words := []string{
		text("networkManager", "config", "podCIDR"), text("networkManager", "config", "serviceCIDR"), text("apiServer", "address"), serviceType,
		text("discovery", "config", "clusterLabels", labels.Provider),
	}
	p.Values = values
	if p.UnverifiedKubelets() {
		words = append(words, "insecure")
	}
	if watch, _, _ := unstructured.NestedBool(values, "gateway", "config", "watchPods"); watch {
		words = append(words, "watch")
	}
	return strings.Join(words, " ")
}
