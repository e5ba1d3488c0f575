// SPDX-License-Identifier: Apache-2.0

package install

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"liqo.io/liqo/internal/action/provider"
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
			p := &Prepared{Plan: provider.Plan{SelfSignedKubelets: test.selfSigned}}
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
