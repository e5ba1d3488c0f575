// SPDX-License-Identifier: Apache-2.0

// Package netns runs programs and opens sockets in network namespaces of this machine: those of nodes, of pods, and of what is between clusters.
//
// It knows Linux and neither clusters nor an API server. Proof: netns_test.go, and test/network, which uses it.
package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"liqo.io/liqo/test/env/execution"
)

// Place is a network namespace in which programs of this machine can run: their traffic is then that of a node or a pod, and neither
// an API server nor a kubelet is needed to start them or to read their output.
type Place struct {
	Name  string
	enter []string // arguments of nsenter
	// groups are the control groups that programs join first, as the files that list their members.
	groups []string
}

// Router is where all that passes between clusters comes by, in the clear as it was sent.
func Router() Place { return Place{Name: "router", enter: Named("lpg-wan").enter} }

// Named is a network namespace by its name.
func Named(name string) Place { return Place{Name: name, enter: []string{"--net=/run/netns/" + name}} }

// OfProcess is the network of a process of this machine.
func OfProcess(number int) Place {
	id := strconv.Itoa(number)
	return Place{Name: id, enter: []string{"--target", id, "--net"}}
}

// Host is this machine's own network.
func Host() Place { return Place{Name: "host", enter: []string{"--net=/proc/self/ns/net"}} }

// argv is the call of nsenter that becomes the program.
func (p Place) argv(program string, args []string) []string {
	call := slices.Concat([]string{"nsenter"}, p.enter, []string{"--", program}, args)
	if len(p.groups) == 0 {
		return call
	}
	const join = `for group in $0; do echo $$ > "$group" || exit 1; done; exec "$@"`
	return append([]string{"sh", "-c", join, strings.Join(p.groups, " ")}, call...)
}

// Try runs a program there.
func (p Place) Try(program string, args ...string) execution.Result {
	call := p.argv(program, args)
	return execution.Run("", call[0], call[1:]...)
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

// Beside is the place, in the control groups for processor time of a process: what runs there gets the share of its pod, not that of
// this machine's other programs.
func (p Place) Beside(number int) (Place, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", number))
	if err != nil {
		return p, fmt.Errorf("control groups of process %d: %w", number, err)
	}
	if p.groups = processorGroups(string(text)); len(p.groups) == 0 {
		return p, fmt.Errorf("process %d is in no control group for processor time: %s", number, text)
	}
	return p, nil
}

// processorGroups are the lists of members of the groups that share out processor time, from /proc/PID/cgroup: of version 1 if there are some, else
// of version 2.
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
