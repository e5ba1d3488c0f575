// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"liqo.io/liqo/internal/action/install/clusters"
)

// TestKubeletCertificates: where kubelets sign their own certificates, the metric agent must not verify them, or `kubectl top` of
// offloaded pods fails. --set wins, now and in later installations.
func TestKubeletCertificates(t *testing.T) {
	extraArgs := func(values map[string]any) []string {
		args, _, err := unstructured.NestedStringSlice(values, "metricAgent", "pod", "extraArgs")
		if err != nil {
			t.Fatal(err)
		}
		return args
	}
	insecure, verify := []string{"--kubelet-insecure-tls"}, []string{"--kubelet-insecure-tls=false"}
	for _, test := range []struct {
		name       string
		selfSigned bool
		set        []string // of this installation
		before     []string // of the installation before
		want       []string
		note       bool
	}{
		{name: "self-signed", selfSigned: true, want: insecure, note: true},
		{name: "signed by the cluster"},
		{name: "set to verify", selfSigned: true, set: []string{"metricAgent.pod.extraArgs={--kubelet-insecure-tls=false}"}, want: verify},
		{name: "set to other arguments", selfSigned: true, set: []string{"metricAgent.pod.extraArgs={--verbose}"}, want: []string{"--verbose"}},
		{name: "set to verify before", selfSigned: true, before: []string{"metricAgent.pod.extraArgs={--kubelet-insecure-tls=false}"}, want: verify},
		{name: "self-signed before", selfSigned: true, before: []string{"metricAgent.pod.extraArgs={--kubelet-insecure-tls}"}, want: insecure, note: true},
		{name: "no metric agent", selfSigned: true, set: []string{"metricAgent.enable=false"}, want: insecure},
	} {
		t.Run(test.name, func(t *testing.T) {
			set, err := parseSet(test.set)
			if err != nil {
				t.Fatal(err)
			}
			before, err := parseSet(test.before)
			if err != nil {
				t.Fatal(err)
			}
			if before, err = plainValues(before); err != nil {
				t.Fatal(err)
			}
			p := &Prepared{Plan: clusters.Plan{SelfSignedKubelets: test.selfSigned}}
			if p.chart, err = loadChart(""); err != nil {
				t.Fatal(err)
			}
			p.Values = merge(merge(before, p.values(before)), set)
			if err := p.checkValues(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, extraArgs(p.Values)); diff != "" && len(test.want)+len(extraArgs(p.Values)) > 0 {
				t.Error(diff)
			}
			if got := p.UnverifiedKubelets(); got != test.note {
				t.Errorf("note: %t, want %t", got, test.note)
			}
		})
	}
}

// TestMetrics: --enable-metrics makes every component serve metrics that can, with a monitor if the cluster has the kinds for it; --enable-metrics=false takes
// back what the flag has set, and nothing else; --set wins.
func TestMetrics(t *testing.T) {
	embedded, err := loadChart("")
	if err != nil {
		t.Fatal(err)
	}
	monitors := map[string]string{"gateway": "serviceMonitor", "virtualKubelet": "podMonitor", "dns": "podMonitor"}
	for component, values := range embedded.Values {
		if inner, is := values.(map[string]any); is && inner["metrics"] != nil && monitors[component] == "" {
			t.Errorf("%s.metrics has no row in this test", component)
		}
	}
	interval := []string{"gateway.metrics.serviceMonitor.interval=7s", "virtualKubelet.metrics.podMonitor.interval=7s", "dns.metrics.podMonitor.interval=7s"}
	for _, test := range []struct {
		name        string
		metrics     *bool
		unmonitored bool
		without     string   // a component that the chart does not have
		set, before []string // of this installation, and of the one before
		want        map[string]string
	}{
		{name: "no flag", want: map[string]string{"gateway": "<nil> <nil>", "virtualKubelet": "<nil> <nil>", "dns": "<nil> <nil>"}},
		{name: "enabled", metrics: new(true), want: map[string]string{"gateway": "true true", "virtualKubelet": "true true", "dns": "true true"}},
		{
			name: "no Prometheus operator", metrics: new(true), unmonitored: true,
			want: map[string]string{"gateway": "true false", "virtualKubelet": "true false", "dns": "true false"},
		},
		{
			name: "one of them set", metrics: new(true), set: []string{"dns.metrics.enabled=false", "dns.metrics.podMonitor.enabled=false"},
			want: map[string]string{"gateway": "true true", "virtualKubelet": "true true", "dns": "false false"},
		},
		{
			name: "an operator that came later", metrics: new(true),
			before: []string{"dns.metrics.enabled=true", "dns.metrics.podMonitor.enabled=false"},
			want:   map[string]string{"gateway": "true true", "virtualKubelet": "true true", "dns": "true true"},
		},
		{
			name: "enabled before", before: []string{"dns.metrics.enabled=true"},
			want: map[string]string{"gateway": "<nil> <nil>", "virtualKubelet": "<nil> <nil>", "dns": "true <nil>"},
		},
		{
			name: "taken back", metrics: new(false), before: []string{
				"gateway.metrics.enabled=true", "gateway.metrics.serviceMonitor.enabled=true", "dns.metrics.enabled=true",
				"dns.metrics.podMonitor.enabled=true",
			},
			want: map[string]string{"gateway": "<nil> <nil>", "virtualKubelet": "<nil> <nil>", "dns": "<nil> <nil>"},
		},
		{
			name: "a chart without a name server", metrics: new(true), without: "dns",
			want: map[string]string{"gateway": "true true", "virtualKubelet": "true true", "dns": "<nil> <nil>"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &Prepared{options: Options{Metrics: test.metrics}, Unmonitored: test.unmonitored}
			if p.chart, err = loadChart(""); err != nil {
				t.Fatal(err)
			}
			delete(p.chart.Values, test.without)
			set, err := parseSet(test.set)
			if err != nil {
				t.Fatal(err)
			}
			before, err := parseSet(append(interval, test.before...))
			if err != nil {
				t.Fatal(err)
			}
			p.Values = merge(merge(before, p.values(before)), set)
			if err := p.checkValues(); err != nil {
				t.Fatal(err)
			}
			for component, monitor := range monitors {
				serves, _, _ := unstructured.NestedFieldNoCopy(p.Values, component, "metrics", "enabled")
				monitored, _, _ := unstructured.NestedFieldNoCopy(p.Values, component, "metrics", monitor, "enabled")
				if have := fmt.Sprint(serves, monitored); have != test.want[component] {
					t.Errorf("%s serves metrics, and has a monitor: %s, want %s", component, have, test.want[component])
				}
				if kept, _, _ := unstructured.NestedFieldNoCopy(p.Values, component, "metrics", monitor, "interval"); kept != "7s" {
					t.Errorf("interval of %s became %v", component, kept)
				}
			}
		})
	}
}
