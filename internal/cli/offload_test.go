// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// TestOffloadOutput: the output has the documented form and needs no cluster.
func TestOffloadOutput(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for name, args := range map[string][]string{
		"offload_yaml": {"offload", "namespace", "shop", "-o", "yaml"},
		"offload_json": {
			"offload", "ns", "shop", "--output", "json", "--pod-offloading-strategy", "Remote", "--namespace-mapping-strategy", "EnforceSameName",
			"-l", "region=europe,tier in (silver,gold),!spot", "--selector", "cheap,zone notin (a),os!=windows",
		},
	} {
		code, out, errOut := run(t, "", args...)
		if code != 0 || errOut != "" {
			t.Errorf("%s: exit code %d, %s", name, code, errOut)
		}
		golden(t, name, out)
	}
}

func TestOffloadRefuses(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nowhere")
	for line, want := range map[string]string{
		"offload":                       "offload what? Try: liqoctl offload namespace NAME",
		"unoffload":                     "unoffload what? Try: liqoctl unoffload namespace NAME",
		"offload namespace":             "want the name of one namespace",
		"offload namespace a b":         "want the name of one namespace",
		"unoffload namespace":           "want the name of one namespace",
		"offload namespace shop -o xml": `unsupported output format "xml"`,
		"offload namespace shop -o ":    `unsupported output format ""`,
		"offload namespace shop -o yaml --pod-offloading-strategy Sometimes": `pod offloading strategy "Sometimes"`,
		"offload namespace shop -o yaml --namespace-mapping-strategy Mine":   `namespace mapping strategy "Mine"`,
		"offload namespace shop -o yaml -l a==":                              "",
		"offload namespace shop -o yaml -l a=b,=c":                           `selector "a=b,=c"`,
		"offload namespace shop -o yaml -l ":                                 "is empty",
	} {
		code, _, errOut := run(t, "", strings.Split(line, " ")...)
		if (code == 0) != (want == "") || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d, %s; want %q", line, code, errOut, want)
		}
	}
}
