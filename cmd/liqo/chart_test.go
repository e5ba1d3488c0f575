// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestChartArguments: the roles accept all arguments that the chart passes.
func TestChartArguments(t *testing.T) {
	seen := map[string]bool{}
	for _, golden := range []string{"default", "full", "network"} {
		text, err := os.ReadFile("../../deployments/liqo/testdata/" + golden + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "---\n") {
			var object struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			for _, container := range slices.Concat(object.Spec.Template.Spec.InitContainers, object.Spec.Template.Spec.Containers) {
				seen[container.Args[0]] = true
				cmd, rest, err := program().Find(container.Args)
				if err == nil {
					err = cmd.ParseFlags(rest)
				}
				if err == nil && cmd.Flags().NArg() > 0 {
					t.Errorf("%s: %v are not flags", container.Name, cmd.Flags().Args())
				}
				if err != nil {
					t.Errorf("%s.yaml, %s: %v", golden, strings.Join(container.Args, " "), err)
				}
			}
		}
	}
	for _, role := range []string{"controller-manager", "auth", "cleanup", "crds", "gateway", "route", "metric-agent", "proxy", "dns"} {
		if !seen[role] {
			t.Errorf("the chart does not run %s", role)
		}
	}
}
