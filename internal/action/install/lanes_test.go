// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
)

// TestLanesComeAndGo: a second gateway also changes the Service of the first one, and its removal changes it back. Repeating the
// command changes nothing, although the API server adds a port for health checks.
func TestLanesComeAndGo(t *testing.T) {
	e := newEnv(t)
	one := map[string]string{"liqo-gateway": "Cluster, checked false"}
	two := map[string]string{"liqo-gateway": "Local, checked true", "liqo-gateway-1": "Local, checked true"}
	for i, want := range []map[string]string{one, two, one} {
		o := options()
		o.Set = []string{"networking.internal=true", fmt.Sprintf("gateway.replicas=%d", len(want))}
		if out, err := e.install(o); err != nil || out.Unchanged {
			t.Fatal(i, out, err)
		}
		if out, err := e.install(o); err != nil || !out.Unchanged {
			t.Error(i, "again:", out, err)
		}
		var services corev1.ServiceList
		if err := e.client.List(t.Context(), &services, client.InNamespace("liqo"), client.MatchingLabels{labels.Gateway: "true"}); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, service := range services.Items {
			got[service.Name] = fmt.Sprintf("%s, checked %t", service.Spec.ExternalTrafficPolicy, service.Spec.HealthCheckNodePort != 0)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("installation %d: %s", i, diff)
		}
	}
}
