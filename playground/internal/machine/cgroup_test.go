// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

func TestHierarchies(t *testing.T) {
	v1 := func(at, options string) *mountinfo.Info {
		return &mountinfo.Info{FSType: "cgroup", Mountpoint: at, VFSOptions: options}
	}
	v2 := func(at string) *mountinfo.Info { return &mountinfo.Info{FSType: "cgroup2", Mountpoint: at} }
	for name, c := range map[string]struct {
		mounts []*mountinfo.Info
		want   []hierarchy
	}{
		"version 2": {
			[]*mountinfo.Info{v2("/sys/fs/cgroup")},
			[]hierarchy{{"/sys/fs/cgroup", 2, ""}},
		},
		"version 1 with a named and a joint tree": {
			[]*mountinfo.Info{v1("/sys/fs/cgroup/cpu,cpuacct", "rw,cpu,cpuacct"), v1("/sys/fs/cgroup/systemd", "rw,xattr,release_agent=/lib/x,name=systemd")},
			[]hierarchy{{"/sys/fs/cgroup/cpu,cpuacct", 1, "cpu,cpuacct"}, {"/sys/fs/cgroup/systemd", 1, "name=systemd"}},
		},
		"hybrid: the version 2 tree has no controllers": {
			[]*mountinfo.Info{v2("/sys/fs/cgroup/unified"), v1("/sys/fs/cgroup/pids", "rw,pids")},
			[]hierarchy{{"/sys/fs/cgroup/pids", 1, "pids"}},
		},
		"mounted twice": {
			[]*mountinfo.Info{v1("/sys/fs/cgroup/pids", "rw,pids"), v1("/other/pids", "rw,pids"), v2("/a"), v2("/b")},
			[]hierarchy{{"/sys/fs/cgroup/pids", 1, "pids"}},
		},
		"none": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, hierarchies(c.mounts)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
