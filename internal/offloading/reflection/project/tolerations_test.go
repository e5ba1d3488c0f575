// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
)

func TestExtendTolerations(t *testing.T) {
	const notReady, unreachable = "key: node.kubernetes.io/not-ready, effect: NoExecute", "key: node.kubernetes.io/unreachable, effect: NoExecute"
	for _, test := range []struct {
		name, has, want      string
		unreachable, changed bool
		wanted               int64
	}{
		{"none", ``, ``, true, false, 3600},
		{
			"filled in by Kubernetes", `[{` + notReady + `, operator: Exists, tolerationSeconds: 300}, {` + unreachable + `, operator: Exists, tolerationSeconds: 300}]`,
			`[{` + notReady + `, operator: Exists, tolerationSeconds: 9223372036854775807}, {` + unreachable +
				`, operator: Exists, tolerationSeconds: 9223372036854775807}]`, true, true, 3600,
		},
		{
			"one of them chosen", `[{` + notReady + `, operator: Exists, tolerationSeconds: 30}, {` + unreachable + `, operator: Exists, tolerationSeconds: 300}]`,
			`[{` + notReady + `, operator: Exists, tolerationSeconds: 30}, {` + unreachable + `, operator: Exists, tolerationSeconds: 9223372036854775807}]`, true, true,
			3600,
		},
		{"the peer answers", `[{` + notReady + `, tolerationSeconds: 300}]`, `[{` + notReady + `, tolerationSeconds: 300}]`, false, false, 3600},
		{"halfway", `[{` + notReady + `, tolerationSeconds: 9223372036854775807}]`, `[{` + notReady + `, tolerationSeconds: 3601}]`, true, true, 3600},
		{
			"halfway, and it answers", `[{` + notReady + `, tolerationSeconds: 9223372036854775807}]`, `[{` + notReady + `, tolerationSeconds: 3601}]`, false, true,
			3600,
		},
		{"the namespace wants no more", `[{` + notReady + `, tolerationSeconds: 300}]`, `[{` + notReady + `, tolerationSeconds: 300}]`, true, false, 0},
		{"it wants as much as Kubernetes", `[{` + notReady + `, tolerationSeconds: 300}]`, `[{` + notReady + `, tolerationSeconds: 300}]`, true, false, 300},
		{
			"halfway, and it has changed its mind", `[{` + notReady + `, tolerationSeconds: 9223372036854775807}]`, `[{` + notReady + `, tolerationSeconds: 300}]`, true,
			true, 0,
		},
		{"minutes are completed", `[{` + notReady + `, tolerationSeconds: 9223372036854775807}]`, `[{` + notReady + `, tolerationSeconds: 661}]`, true, true, 602},
		{"for ever", `[{` + notReady + `, operator: Exists}]`, `[{` + notReady + `, operator: Exists}]`, true, false, 3600},
		{"another taint", `[{key: disk, effect: NoExecute, tolerationSeconds: 300}]`, `[{key: disk, effect: NoExecute, tolerationSeconds: 300}]`, true, false, 3600},
		{"done", `[{` + notReady + `, tolerationSeconds: 3601}]`, `[{` + notReady + `, tolerationSeconds: 3601}]`, true, false, 3600},
	} {
		has, want := read[[]corev1.Toleration](t, test.has), read[[]corev1.Toleration](t, test.want)
		got, changed := podspec.ExtendTolerations(has, test.wanted, test.unreachable)
		if difference := cmp.Diff(want, got); difference != "" || changed != test.changed {
			t.Errorf("%s: changed: %t\n%s", test.name, changed, difference)
		}
		if again := read[[]corev1.Toleration](t, test.has); !cmp.Equal(again, has) {
			t.Errorf("%s: the argument was changed", test.name)
		}
	}
}

// TestExtensionIsNotReflected: how long the consumer waits for its provider is not how long the provider waits for its nodes.
func TestExtensionIsNotReflected(t *testing.T) {
	pod := func(seconds string) *corev1.Pod {
		made := read[corev1.Pod](t, `
metadata: {namespace: app, name: web, uid: u}
spec:
  containers: [{name: c, image: c}]
  tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: `+seconds+`}]
`)
		return &made
	}
	mapping := project.NamespaceMapping{Local: "app", Remote: "app-rome", LocalID: "l", RemoteID: "r", NodeName: "liqo-milan"}
	for from, want := range map[string]int64{"300": 300, "3601": 300, "661": 300, "9223372036854775807": 300, "3600": 3600, "301": 300, "61": 61, "30": 30} {
		intent, err := podspec.ShadowPod(mapping, pod(from), podspec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := *intent.Spec.Pod.Tolerations[0].TolerationSeconds; got != want {
			t.Errorf("%s s become %d, want %d", from, got, want)
		}
	}
}
