// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/liqo/test/bench/targets"
	"liqo.io/liqo/test/env"
)

// The measurements, as column headers of the table.
const (
	tcp1 = "TCP, 1 stream (Gbit/s)"
	tcp4 = "TCP, 4 streams (Gbit/s)"
	udp  = "UDP, 1 Gbit/s offered (Gbit/s)"
	rate = "HTTP, 16 workers (1/s)"
	p50  = "HTTP p50 (µs)"
	p99  = "HTTP p99 (µs)"
	// busy50 and busy99 show how long packets wait behind those of a download.
	busy50 = "HTTP p50 beside 4 streams (µs)"
	busy99 = "HTTP p99 beside 4 streams (µs)"
)

func columns() []string { return []string{tcp1, tcp4, udp, rate, p50, p99, busy50, busy99} }

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// isTime reports whether a column is one of times, which are compared by difference.
func isTime(what string) bool { return strings.HasSuffix(what, "(µs)") }

// rows are the medians and ranges of some measured paths.
func rows(names []string, results map[string]map[string][]float64) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nMedian (smallest to largest) of %d rounds\n\n| path | %s |\n|---|%s\n", *rounds, strings.Join(columns(), " | "), strings.Repeat("---|", len(columns())))
	for _, name := range names {
		fmt.Fprintf(&text, "| %s |", name)
		for _, what := range columns() {
			digits := 2
			if what == rate || isTime(what) {
				digits = 0
			}
			values := results[name][what]
			if len(values) == 0 { // it has failed before
				text.WriteString(" – |")
				continue
			}
			fmt.Fprintf(&text, " %.*f (%.*f–%.*f) |", digits, median(values), digits, slices.Min(values), digits, slices.Max(values))
		}
		text.WriteString("\n")
	}
	return text.String()
}

// ratios are the medians of the ratios to one of the paths in the same round.
func ratios(names []string, to string, results map[string]map[string][]float64) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nRatio to %q (latency: difference in µs), median of the rounds\n\n| path | %s |\n|---|%s\n", to, strings.Join(columns(), " | "), strings.Repeat("---|", len(columns())))
	for _, name := range names {
		fmt.Fprintf(&text, "| %s |", name)
		for _, what := range columns() {
			var compared []float64
			for i, value := range results[name][what][:min(len(results[name][what]), len(results[to][what]))] {
				if isTime(what) {
					compared = append(compared, value-results[to][what][i])
				} else {
					compared = append(compared, value/results[to][what][i])
				}
			}
			if len(compared) == 0 {
				text.WriteString(" – |")
				continue
			}
			format := " %.2f%s |"
			if isTime(what) {
				format = " %+.0f%s |"
			}
			measure := ""
			if to == tunnelName && (name == onName || name == offName) {
				measure = targetOf[what]
			}
			fmt.Fprintf(&text, format, median(compared), missed(measure, median(compared)))
		}
		text.WriteString("\n")
	}
	return text.String()
}

// table compares all paths with the tunnel between gateways of the same round.
func table(paths []path, results map[string]map[string][]float64) string {
	names := make([]string, 0, len(paths))
	for _, p := range paths {
		names = append(names, p.name)
	}
	text := rows(names, results)
	if results[tunnelName] == nil {
		return text
	}
	return text + ratios(names, tunnelName, results)
}

// targetOf are the measures of the list of targets, by column: of Liqo's paths beside the tunnel between the same pods.
var targetOf = map[string]string{tcp1: "TCP, ratio", tcp4: "TCP, ratio", udp: "UDP, ratio", rate: "HTTP requests, ratio", p50: "HTTP p50, difference"}

// memoryOf are the measures of the list of targets, by phase; an idle gateway after load has none.
var memoryOf = map[string]string{"idle": "memory of a gateway, idle", "load": "memory of a gateway, load", "load, all carriers": "memory of a gateway, load"}

// missed is what a cell shows beside a value that misses its target.
func missed(measure string, value float64) string {
	if measure == "" {
		return ""
	}
	target, err := targets.Of("network", measure)
	if err != nil {
		return " (" + err.Error() + ")"
	}
	if target.Met(value) {
		return ""
	}
	return " (MISSED, " + target.Text + ")"
}

// memory samples the memory of the gateways' processes.
type memory struct {
	mu    sync.Mutex
	names []string
	phase string                           // one of phases
	peak  map[string]map[string][3]float64 // phase, gateway: RSS, anonymous, working set, in MB
	done  chan struct{}
	ended sync.WaitGroup
}

// phases are the phases of the measurement.
var phases = []string{"idle", "load", "load, all carriers", "idle after load"}

func watchGateways(t *testing.T, all ...*env.Cluster) *memory {
	t.Helper()
	m := &memory{peak: map[string]map[string][3]float64{}, done: make(chan struct{})}
	for _, phase := range phases {
		m.peak[phase] = map[string][3]float64{}
	}
	for _, c := range all {
		number, err := gateway(t, c).Process("liqo")
		if err != nil {
			t.Fatal(err)
		}
		m.names = append(m.names, c.Name)
		m.ended.Go(func() {
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-m.done:
					return
				case <-tick.C:
					m.add(c.Name, sample(number))
				}
			}
		})
	}
	return m
}

func (m *memory) enter(phase string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase = phase
}

func (m *memory) add(name string, seen [3]float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.peak[m.phase] == nil {
		return
	}
	peak := m.peak[m.phase][name]
	for i := range peak {
		peak[i] = max(peak[i], seen[i])
	}
	m.peak[m.phase][name] = peak
}

func (m *memory) stop() {
	close(m.done)
	m.ended.Wait()
}

// sample reads the memory of a process and the working set of its control group, in MB.
func sample(number int) (seen [3]float64) {
	field := func(file, name string) float64 {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0
		}
		for line := range bytes.Lines(text) {
			words := strings.Fields(string(line))
			if len(words) > 1 && words[0] == name {
				n, _ := strconv.ParseFloat(words[1], 64)
				return n
			}
		}
		if n, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err == nil && name == "" {
			return n
		}
		return 0
	}
	status := fmt.Sprintf("/proc/%d/status", number)
	seen[0], seen[1] = field(status, "VmRSS:")*1024/1e6, field(status, "RssAnon:")*1024/1e6
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", number))
	if err != nil {
		return seen
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) == 3 && parts[1] == "memory": // version 1
			dir := filepath.Join("/sys/fs/cgroup/memory", parts[2])
			seen[2] = (field(filepath.Join(dir, "memory.usage_in_bytes"), "") - field(filepath.Join(dir, "memory.stat"), "total_inactive_file")) / 1e6
		case len(parts) == 3 && parts[1] == "" && seen[2] == 0:
			dir := filepath.Join("/sys/fs/cgroup", parts[2])
			seen[2] = (field(filepath.Join(dir, "memory.current"), "") - field(filepath.Join(dir, "memory.stat"), "inactive_file")) / 1e6
		}
	}
	return seen
}

func (m *memory) table() string {
	var text strings.Builder
	text.WriteString("Memory of the gateways in MB, maximum: RSS / anonymous / working set of the container\n\n| gateway | " +
		strings.Join(phases, " | ") + " |\n|---|" + strings.Repeat("---|", len(phases)) + "\n")
	for _, name := range m.names {
		fmt.Fprintf(&text, "| %s |", name)
		for _, phase := range phases {
			seen := m.peak[phase][name]
			fmt.Fprintf(&text, " %.0f / %.0f / %.0f%s |", seen[0], seen[1], seen[2], missed(memoryOf[phase], seen[2]))
		}
		text.WriteString("\n")
	}
	return text.String()
}
