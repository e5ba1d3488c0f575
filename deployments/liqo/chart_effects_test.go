// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"liqo.io/liqo/deployments/liqo/charttest"
)

// TestEffects: what a value does. TestEveryValueMatters shows only that each of them does something.
func TestEffects(t *testing.T) {
	for _, row := range []struct {
		set, kind, name string
		want            []string // lines of the object
	}{
		{"auth.config.enableAuthentication=false", "Deployment", "liqo-auth", []string{"- --enable-authentication=false"}},
		{charttest.Internal + ",gateway.metrics.enabled=true", "Service", "liqo-gateway-metrics", []string{"port: 5872"}},
		{
			charttest.Internal + ",gateway.metrics.enabled=true,gateway.metrics.serviceMonitor.enabled=true,gateway.metrics.serviceMonitor.interval=30s," +
				"gateway.metrics.serviceMonitor.scrapeTimeout=5s,gateway.metrics.serviceMonitor.labels.release=prometheus",
			"ServiceMonitor", "liqo-gateway-metrics",
			[]string{"- interval: 30s", "scrapeTimeout: 5s", "release: prometheus"},
		},
		{
			charttest.Internal + ",route.pod.annotations.note=seen,route.pod.labels.team=net,route.pod.extraArgs={--v=4},route.pod.resources.limits.memory=96Mi",
			"DaemonSet", "liqo-route",
			[]string{"note: seen", "team: net", "- --v=4", "memory: 96Mi"},
		},
		{
			"virtualKubelet.metrics.enabled=true,virtualKubelet.metrics.podMonitor.enabled=true,virtualKubelet.metrics.podMonitor.interval=30s," +
				"virtualKubelet.metrics.podMonitor.scrapeTimeout=5s,virtualKubelet.metrics.podMonitor.labels.release=prometheus",
			"PodMonitor", "liqo-virtual-kubelet",
			[]string{"- interval: 30s", "scrapeTimeout: 5s", "release: prometheus"},
		},
		{"webhook.failurePolicy=Ignore", "ValidatingWebhookConfiguration", "liqo", []string{"failurePolicy: Ignore", "sideEffects: None"}},
		{"webhook.port=9444", "Deployment", "liqo-controller-manager", []string{"- --webhook-port=9444"}},
	} {
		object := charttest.Find(t, charttest.Render(t, row.set), row.kind, row.name)
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		lines := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			lines[strings.TrimSpace(line)] = true
		}
		for _, want := range row.want {
			if !lines[want] {
				t.Errorf("%s: %s %s has no line %q:\n%s", row.set, row.kind, row.name, want, text)
			}
		}
	}
}
