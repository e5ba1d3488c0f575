// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"strings"
	"testing"
)

// TestProcessorGroups: the files of both versions of control groups.
func TestProcessorGroups(t *testing.T) {
	for text, want := range map[string]string{
		"2:cpuacct:/a\n1:cpu:/a\n4:memory:/b\n0::/\n": "/sys/fs/cgroup/cpuacct/a/cgroup.procs /sys/fs/cgroup/cpu/a/cgroup.procs",
		"4:cpu,cpuacct:/kubepods/x\n0::/\n":           "/sys/fs/cgroup/cpu,cpuacct/kubepods/x/cgroup.procs",
		"0::/kubepods.slice/y\n":                      "/sys/fs/cgroup/kubepods.slice/y/cgroup.procs",
		"4:memory:/b\n":                               "",
	} {
		if got := strings.Join(processorGroups(text), " "); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
