// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestHostIPStays: the status of a running pod does not depend on the address of the process that writes it.
func TestHostIPStays(t *testing.T) {
	remote := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	local := &corev1.Pod{}
	for _, step := range []struct{ name, ours, want string }{
		{"the first process", "10.200.1.7", "10.200.1.7"},
		{"its successor", "10.200.1.66", "10.200.1.7"},
		{"one that reports no addresses", "", ""},
		{"one that does again", "10.200.1.67", "10.200.1.67"},
	} {
		status, err := Of(Facts{Local: local, Remote: remote, HostIP: HostIP(local, step.ours)})
		if err != nil {
			t.Fatal(err)
		}
		if status.HostIP != step.want || len(status.HostIPs) > 0 != (step.want != "") || len(status.HostIPs) > 0 && status.HostIPs[0].IP != step.want {
			t.Errorf("%s: %q %v, want %q", step.name, status.HostIP, status.HostIPs, step.want)
		}
		local.Status = status
	}
}
