// SPDX-License-Identifier: Apache-2.0

package clusters_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/install/clusters"
	"liqo.io/liqo/internal/action/install/facts"
)

// recorded is a cluster of testdata, and the plan for it.
type recorded struct {
	objects, host string
	change        func(object *unstructured.Unstructured)
	overrides     clusters.Overrides
	want          string // pods, Services, API server, type of Services, label of the cluster, kubelets; or words of the error
}

// check compares the plans for recorded clusters of a type. Without the name of the type it is recognised, and its plan is the same.
func check(t *testing.T, name clusters.Name, all ...recorded) {
	t.Helper()
	for _, test := range all {
		for _, name := range []clusters.Name{name, clusters.Auto} {
			text, err := os.ReadFile("testdata/" + test.objects + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			builder := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme)
			for document := range strings.SplitSeq(string(text), "\n---\n") {
				object := &unstructured.Unstructured{}
				if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
					t.Fatalf("%s: %v", test.objects, err)
				}
				if test.change != nil {
					test.change(object)
				}
				builder = builder.WithObjects(object)
			}
			observed, err := facts.Read(t.Context(), builder.Build(), test.host)
			if err != nil {
				t.Fatal(err)
			}
			overrides := test.overrides
			overrides.Type, overrides.ClusterName = name, "rome"
			plan, err := clusters.Decide(observed, overrides)
			have := words(plan)
			if err != nil {
				have = err.Error()
			}
			if have != test.want {
				t.Errorf("%s, type %q, API server %s, %+v:\n%s, want\n%s", test.objects, name, test.host, test.overrides, have, test.want)
			}
		}
	}
}

func words(plan clusters.Plan) string {
	text := fmt.Sprintf("%s %s %s %s %s", plan.PodCIDR, plan.ServiceCIDR, or(plan.Published()), or(plan.ServiceType), or(plan.Labels[labels.Provider]))
	if plan.SelfSignedKubelets {
		text += " insecure"
	}
	if plan.WatchPods {
		text += " watch"
	}
	return text
}

func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
