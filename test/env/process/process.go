// SPDX-License-Identifier: Apache-2.0

// Package process finds the processes of the playground's clusters by their control groups, and those that this process has started, and reads how much
// memory and processor time they use.
//
// It knows /proc of this machine. Proof: test/bench/offload, test/soak and the benchmarks of cmd/liqo and internal/offloading/shadowpod, which use it.
package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Process is a process of a cluster, found by its control group.
type Process struct {
	Number  int
	Cluster string
	Role    string // program, or the first argument of Liqo's program
	Liqo    bool
}

// All returns all processes of the playground's clusters.
func All() (all []Process, err error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	for _, file := range groups {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		_, path, of := strings.Cut(string(text), "/liqo-playground/")
		line, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if !of || err != nil || len(line) == 0 {
			continue
		}
		number, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		words := strings.Split(string(line), "\x00")
		cluster, _, _ := strings.Cut(path, ".")
		p := Process{Number: number, Cluster: cluster, Role: filepath.Base(words[0])}
		if p.Role == "liqo" && len(words) > 1 {
			p.Liqo, p.Role = true, words[1]
		}
		all = append(all, p)
	}
	return all, nil
}

// Label names the role and the cluster.
func (p Process) Label() string { return p.Role + " " + p.Cluster }

// Memory is resident, anonymous and proportional memory in MiB.
type Memory struct{ RSS, Anonymous, PSS float64 }

// Memory returns what the process uses now.
func (p Process) Memory() (m Memory, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.Number))
	if err != nil {
		return m, err
	}
	values := []*float64{&m.RSS, &m.Anonymous, &m.PSS}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		if i := slices.Index([]string{"Rss:", "Anonymous:", "Pss:"}, words[0]); i >= 0 {
			kilo, err := strconv.ParseFloat(words[1], 64)
			if err != nil {
				return m, fmt.Errorf("memory of %s: %w", p.Label(), err)
			}
			*values[i] = kilo / 1024
		}
	}
	return m, nil
}

// Spent returns the processor time of the processes that this one has started, and that those have started, by the first 15 characters of their program.
func Spent() (map[string]time.Duration, error) {
	const tick = time.Second / 100 // of the kernel's clock of processes
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	type running struct {
		parent int
		name   string
		spent  time.Duration
	}
	all := map[int]running{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		head, rest, found := strings.Cut(string(text), ") ")
		number, name, _ := strings.Cut(head, " (")
		fields := strings.Fields(rest)
		if !found || len(fields) < 13 {
			return nil, fmt.Errorf("%s: %q is not as proc(5) describes it", file, text)
		}
		var values [4]int
		for i, field := range []string{number, fields[1], fields[11], fields[12]} { // process, parent, time of the program, time of the kernel
			if values[i], err = strconv.Atoi(field); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
		all[values[0]] = running{parent: values[1], name: name, spent: time.Duration(values[2]+values[3]) * tick}
	}
	spent := map[string]time.Duration{}
	for _, one := range all {
		for above := one.parent; above > 1; above = all[above].parent {
			if above == os.Getpid() {
				spent[one.name] += one.spent
				break
			}
		}
	}
	return spent, nil
}
