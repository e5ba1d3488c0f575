// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env/process"
	"liqo.io/liqo/test/env/recorder"
	"liqo.io/liqo/test/soak/plan"
)

// usage is what the processes of one role in one cluster use together.
type usage struct {
	processes string // their numbers: others than before have been started again
	anonymous float64
	files     int // open ones, connections included
}

// A measurement is the median of some samples.
const samples, between = 20, 2 * time.Second

// measure measures Liqo's processes while users do nothing.
func measure(t *testing.T) map[string]usage {
	t.Helper()
	memory, files, numbers := map[string][]float64{}, map[string][]int{}, map[string]string{}
	tick := time.NewTicker(between)
	defer tick.Stop()
	for range samples {
		all, err := process.All()
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(all, func(a, b process.Process) int { return a.Number - b.Number })
		sum, open := map[string]float64{}, map[string]int{}
		clear(numbers)
		for _, p := range all {
			now, err := p.Memory()
			if !p.Liqo || err != nil {
				continue // it has ended since
			}
			opened, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Number)) // none if it has ended since
			sum[p.Label()] += now.Anonymous
			open[p.Label()] += len(opened)
			numbers[p.Label()] += fmt.Sprint(p.Number, " ")
		}
		for label := range sum {
			memory[label], files[label] = append(memory[label], sum[label]), append(files[label], open[label])
		}
		<-tick.C
	}
	found := map[string]usage{}
	for label, all := range memory {
		found[label] = usage{numbers[label], slices.Sorted(slices.Values(all))[len(all)/2], slices.Sorted(slices.Values(files[label]))[len(all)/2]}
	}
	return found
}

// The bounds of growth. Go's collector lets a heap grow to twice what is alive, and returns what a burst needed only slowly: the anonymous memory of
// a process that loses nothing is anywhere between one and two times its live objects, at the same load. So a process that grows to more than
// twice its size has kept something, and one that grows by less has not been shown to. What leaks grows with the length of the run, and
// this bound does not: run longer to find smaller leaks. The constants are for small processes, whose stacks and buffers are not proportional to
// anything that the load has.
const (
	growth      = 2.0
	memoryBase  = 8 // MiB, for each process of a role in a cluster
	filesGrowth = 1.5
	filesBase   = 16
)

// result is what is reported at the end.
type result struct {
	rows   [][2]string
	memory [2]map[string]usage // at the start, and at the end
	usage  string              // a table
}

func newResult(seed uint64) *result {
	r := &result{}
	r.note("seed; length; pace; namespaces; pods", "%d; %v; %v; %d; %d", seed, *lasting, *pace, *namespaces, *namespaces**each)
	return r
}

func (r *result) note(what, format string, values ...any) {
	r.rows = append(r.rows, [2]string{what, fmt.Sprintf(format, values...)})
}

// compare compares memory and open files at the start and at the end.
func (r *result) compare(t *testing.T) {
	t.Helper()
	var text strings.Builder
	text.WriteString("| Process | Anonymous memory, start (MiB) | end | Open files, start | end | Started again meanwhile |\n|---|---|---|---|---|---|\n")
	for _, label := range slices.Sorted(maps.Keys(r.memory[1])) {
		start, known := r.memory[0][label]
		end := r.memory[1][label]
		again := "no"
		if start.processes != end.processes {
			again = "yes"
		}
		fmt.Fprintf(&text, "| %s | %.1f | %.1f | %d | %d | %s |\n", label, start.anonymous, end.anonymous, start.files, end.files, again)
		count := len(strings.Fields(end.processes))
		switch {
		case !known:
			t.Errorf("%s runs at the end, and did not at the start", label)
		case end.anonymous > growth*start.anonymous+float64(memoryBase*count):
			t.Errorf("%s has %.1f MiB of anonymous memory at the end, and had %.1f MiB at the start, with the same load", label, end.anonymous, start.anonymous)
		case float64(end.files) > filesGrowth*float64(start.files)+float64(filesBase*count):
			t.Errorf("%s has %d open files at the end, and had %d at the start, with the same load", label, end.files, start.files)
		}
	}
	r.usage = text.String()
}

// history reports what the history shows.
func (r *result) history(found recorder.Report) {
	broken := map[string]int{}
	for _, v := range found.Violations {
		broken[v.Law]++
	}
	r.note("pods created on virtual nodes; in the providers", "%d; %d", found.Count["Pods in the consumer"], found.Count["Pods in the provider"])
	r.note("runs of containers; with observed processes", "%d; %d", found.Count["runs of containers"], found.Count["containers with observed processes"])
	r.note("pods lost: deleted without a request", "%d", broken["no pod is deleted without a request"])
	r.note("pods doubled: two live incarnations", "%d", broken["a pod runs once at a time"])
	r.note("finished pods that ran again; running ones restarted", "%d; %d", broken["a finished pod does not run again"], broken["a running pod is not restarted"])
	r.note("violations of laws in all", "%d", len(found.Violations))
	longest, of := 0.0, "none"
	for cause, seconds := range found.Converged {
		if seconds > longest {
			longest, of = seconds, cause
		}
	}
	r.note("longest time until the clusters agreed after a fault", "%.1f s, after %s", longest, of)
	r.note("times for which a watch of the recorder had a gap", "%d", len(found.Gaps))
}

// applied reports what was done.
func (r *result) applied(a *applier) {
	users, faults := "", ""
	sums := [2]int{}
	for _, verb := range slices.Sorted(maps.Keys(a.done)) {
		text := fmt.Sprintf(", %d %s", a.done[verb], verb)
		if (plan.Action{Verb: verb}).IsFault() {
			faults += text
			if !(plan.Action{Verb: verb}).Ends() {
				sums[1] += a.done[verb]
			}
		} else {
			users += text
			sums[0] += a.done[verb]
		}
	}
	r.note("actions of users, start and end included", "%d: %s", sums[0], strings.TrimPrefix(users, ", "))
	r.note("faults", "%d: %s", sums[1], strings.TrimPrefix(faults, ", "))
	r.note("commands that users repeated; the slowest, with repetitions", "%d; %.1f s, %s", a.repeated, a.slowest.Seconds(), a.slowName)
}

// report prints the figures and writes them to bin/results.
func (r *result) report(t *testing.T) {
	t.Helper()
	text := "| Measure | Value |\n|---|---|\n"
	for _, row := range r.rows {
		text += "| " + row[0] + " | " + row[1] + " |\n"
		clusters.Measure(row[0], "%s", row[1])
	}
	text += "\n" + r.usage
	clusters.Report(r.usage)
	folder := filepath.Join(clusters.Bin, "results")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "soak-figures.md"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
