// SPDX-License-Identifier: Apache-2.0

package project_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/offloading/reflection/project"
	"liqo.io/liqo/internal/offloading/reflection/project/podspec"
	"liqo.io/liqo/internal/offloading/reflection/project/podstatus"
)

// TestUnmet: which pods are not sent, and what lets them run all the same.
func TestUnmet(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		without    []string
		want       []string
	}{
		{"nothing", `{hostNetwork: true, hostPID: true, hostIPC: true, schedulerName: mine, priority: 7, nodeSelector: {a: b}, hostUsers: false}`, nil, nil},
		{"a sandbox", `{runtimeClassName: gvisor, overhead: {cpu: 10m}}`, nil, []string{"runtimeClassName"}},
		{"a sandbox that it may lack", `{runtimeClassName: gvisor}`, []string{"runtimeClassName"}, nil},
		{"devices", `{resourceClaims: [{name: gpu, resourceClaimName: gpu}]}`, []string{"runtimeClassName"}, []string{"resourceClaims"}},
		{"Windows", `{os: {name: windows}}`, nil, []string{"os"}},
		{"Linux", `{os: {name: linux}}`, nil, nil},
		{
			"two of three", `{runtimeClassName: gvisor, os: {name: windows}, resourceClaims: [{name: gpu, resourceClaimName: gpu}]}`,
			[]string{"resourceClaims"},
			[]string{"runtimeClassName", "os"},
		},
	} {
		pod := &corev1.Pod{Spec: read[corev1.PodSpec](t, c.spec)}
		pod.Spec.NodeName = "liqo-milan"
		if got := podspec.Unmet(pod, c.without); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if len(c.want) == 0 {
			continue
		}
		err := podspec.Unsent(pod, c.without)
		if !errors.Is(err, project.ErrRefused) {
			t.Errorf("%s: %v is no refusal", c.name, err)
		}
		for _, word := range append(slices.Clone(c.want), "liqo-milan", "runWithout: ["+strings.Join(c.want, ", ")+"]", "liqo.io/type NotIn virtual-node") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the message lacks %q: %s", c.name, word, err)
			}
		}
		for _, word := range c.without {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%s: the message names %s, which the pod may lack: %s", c.name, word, err)
			}
		}
		if status := podstatus.NotMet(pod, err); status.Phase != corev1.PodPending || status.Reason != podstatus.RequestNotMet || status.Message != err.Error() {
			t.Errorf("%s: status %+v", c.name, status)
		}
	}
}
