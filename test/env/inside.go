// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Place is a network namespace in which programs of this machine can run: their traffic is then that of a node or a pod, and neither
// an API server nor a kubelet is needed to start them or to read their output.
type Place struct {
	Name  string
	enter []string // arguments of nsenter
	// groups are the control groups that programs join first, as the files that list their members.
	groups []string
}

// Net is the node's own network, which pods with hostNetwork share.
func (n *Node) Net() Place {
	return Place{Name: n.Name, enter: Named("lpg-" + n.Name).enter}
}

// Router is where all that passes between clusters comes by, in the clear as it was sent.
func Router() Place { return Place{Name: "router", enter: Named("lpg-wan").enter} }

// Named is a network namespace by its name.
func Named(name string) Place { return Place{Name: name, enter: []string{"--net=/run/netns/" + name}} }

// Host is this machine's own network.
func Host() Place { return Place{Name: "host", enter: []string{"--net=/proc/self/ns/net"}} }

// argv is the call of nsenter that becomes the program.
func (p Place) argv(program string, args []string) []string {
	call := slices.Concat([]string{"nsenter"}, p.enter, []string{"--", program}, args)
	if len(p.groups) == 0 {
		return call
	}
	const join = `for one in $0; do echo $$ > "$one" || exit 1; done; exec "$@"`
	return append([]string{"sh", "-c", join, strings.Join(p.groups, " ")}, call...)
}

// Try runs a program there.
func (p Place) Try(program string, args ...string) Result {
	call := p.argv(program, args)
	return Execute("", call[0], call[1:]...)
}

// Command prepares a program that is to run there for longer.
func (p Place) Command(program string, args ...string) *exec.Cmd {
	call := p.argv(program, args)
	return exec.Command(call[0], call[1:]...)
}

// Run wants success and returns what was printed.
func (p Place) Run(t testing.TB, program string, args ...string) string {
	t.Helper()
	r := p.Try(program, args...)
	if r.Code != 0 {
		t.Fatalf("%s: %s", p.Name, r)
	}
	return strings.TrimSpace(r.Out)
}

// Net is the pod's network. The pod must run.
func (p Pod) Net() (Place, error) {
	all, err := p.Processes()
	if err != nil {
		return Place{}, err
	}
	if len(all) == 0 {
		return Place{}, fmt.Errorf("pod %s in %s has no process", p.Name, p.Node.Name)
	}
	return Place{Name: p.Node.Name + "/" + p.Name, enter: []string{"--target", strconv.Itoa(all[0]), "--net"}}, nil
}

// Beside is the pod's network, in the control groups for processor time of its program: what runs there gets the share of the pod, not that of this machine's
// other programs.
func (p Pod) Beside(program string) (Place, error) {
	place, err := p.Net()
	if err != nil {
		return place, err
	}
	number, err := p.Process(program)
	if err != nil {
		return place, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", number))
	if err != nil {
		return place, fmt.Errorf("control groups of pod %s: %w", p.Name, err)
	}
	if place.groups = processorGroups(string(text)); len(place.groups) == 0 {
		return place, fmt.Errorf("pod %s is in no control group for processor time: %s", p.Name, text)
	}
	return place, nil
}

// processorGroups are the lists of members of the groups that share out processor time, from /proc/PID/cgroup: of version 1 if there are some, else of version 2.
func processorGroups(text string) (files []string) {
	unified := ""
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if parts[1] == "" {
			unified = filepath.Join("/sys/fs/cgroup", parts[2], "cgroup.procs")
		}
		if slices.Contains(strings.Split(parts[1], ","), "cpu") || parts[1] == "cpuacct" {
			files = append(files, filepath.Join("/sys/fs/cgroup", parts[1], parts[2], "cgroup.procs"))
		}
	}
	if len(files) == 0 && unified != "" {
		files = []string{unified}
	}
	return files
}

// Processes are the pod's processes by their numbers on this machine; the control group of each names its pod.
func (p Pod) Processes() (all []int, err error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	for _, file := range groups {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("/pod"+p.UID)) {
			continue // it may have ended since
		}
		number, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		all = append(all, number)
	}
	return all, nil
}

// Process is the one process of the pod whose program has the name.
func (p Pod) Process(program string) (int, error) {
	all, err := p.Processes()
	if err != nil {
		return 0, err
	}
	for _, number := range all {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", number))
		if first, _, _ := strings.Cut(string(line), "\x00"); err == nil && filepath.Base(first) == program {
			return number, nil
		}
	}
	return 0, fmt.Errorf("none of the processes %v of pod %s is a %s", all, p.Name, program)
}
