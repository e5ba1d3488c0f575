// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// traces are where a playground leaves something on the machine while it is up. They are
// written down here once more, on purpose: the suite must not ask the program what the
// program forgot.
const (
	stateDir   = "/var/lib/liqo-playground"
	runtimeDir = "/run/liqo-playground"
	cgroupName = "liqo-playground"
	netnsDir   = "/run/netns"
)

// settings are those of the machine that a playground or its kubelets change.
var settings = []string{
	"fs/inotify/max_user_instances", "fs/inotify/max_user_watches",
	"kernel/keys/maxkeys", "kernel/keys/maxbytes", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
}

// snapshot is everything on the machine that a playground could leave behind, one line each.
type snapshot []string

func takeSnapshot() snapshot {
	var s snapshot
	add := func(kind string, lines ...string) {
		for _, line := range lines {
			if line = strings.TrimSpace(line); line != "" {
				s = append(s, kind+" "+line)
			}
		}
	}
	for _, pid := range playgroundProcesses() {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // may be gone by now
		add("process", fmt.Sprint(pid, " ", strings.ReplaceAll(string(command), "\x00", " ")))
	}
	add("network namespace", names(netnsDir+"/*")...)
	add("files", names(
		stateDir, runtimeDir, "/var/log/containers/*", "/var/log/pods/*", "/etc/cni/net.d/*", "/run/containerd*", "/tmp/hollow-kubelet*",
		"/tmp/kubelet_remote*",
	)...)
	add("cgroup", cgroups()...)
	links, err := net.Interfaces()
	if err != nil {
		add("link", err.Error())
	}
	for _, link := range links {
		addresses, _ := link.Addrs() // of a link that vanishes now: none
		add("link", fmt.Sprint(link.Name, " ", addresses))
	}
	add("route", lines("/proc/net/route")...)
	for line := range strings.SplitSeq(read("/proc/self/mountinfo"), "\n") {
		// Below /tmp, other tests on the machine have their own.
		if fields := strings.Fields(line); len(fields) > 4 && !strings.HasPrefix(fields[4], "/tmp/") {
			add("mount", fields[3]+" on "+fields[4])
		}
	}
	tables, err := exec.Command("nft", "list", "tables").CombinedOutput()
	if err != nil {
		add("nft", err.Error())
	}
	add("nft", strings.Split(string(tables), "\n")...)
	for _, name := range settings {
		add("setting", name+" = "+read("/proc/sys/"+name))
	}
	slices.Sort(s)
	return s
}

// difference lists what the later snapshot lacks (-) and has more (+).
func (s snapshot) difference(later snapshot) []string {
	var out []string
	for _, line := range s {
		if !slices.Contains(later, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range later {
		if !slices.Contains(s, line) {
			out = append(out, "+ "+line)
		}
	}
	return out
}

// same fails if the machine is not as it was.
func (s snapshot) same(t testing.TB, since string) {
	t.Helper()
	if changes := s.difference(takeSnapshot()); len(changes) > 0 {
		t.Errorf("%s, the machine is not as before (- before, + now):\n%s", since, strings.Join(changes, "\n"))
	}
}

// playgroundProcesses are all processes in the playground's cgroup or below, in any
// hierarchy. Others may have a cgroup with a similar name.
func playgroundProcesses() []int {
	var found []int
	all, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, file := range all {
		var pid int
		if ours.MatchString(read(file)) {
			if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

var ours = regexp.MustCompile(`(?m)^\d+:[^:]*:/(.*/)?` + cgroupName + `(/|$)`)

// cgroups are the playground's directories in every hierarchy.
func cgroups() []string {
	var found []string
	for _, root := range names("/sys/fs/cgroup/"+cgroupName, "/sys/fs/cgroup/*/"+cgroupName) {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				found = append(found, path)
			}
			return nil // what vanishes meanwhile is not left behind
		})
	}
	return found
}

func names(patterns ...string) []string {
	var found []string
	for _, pattern := range patterns {
		some, _ := filepath.Glob(pattern) // the patterns are right
		found = append(found, some...)
	}
	return found
}

func read(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}

func lines(file string) []string { return strings.Split(read(file), "\n") }
