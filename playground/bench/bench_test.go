// SPDX-License-Identifier: Apache-2.0

// Package bench measures the cost of a playground: time to come up and go, memory of a
// control plane and of a node, processor time of idle clusters, pods on hollow nodes.
//
// It knows the playground as a process (and where its cgroups are). It needs root and a
// machine without a playground; run it with: make bench. Results belong in
// docs/benchmarks.md.
package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/topology"
)

var cold = flag.Bool("cold", false, "also measure a build with empty caches (ten to fifteen minutes)")

// settle is the time after which a cluster that came up is called idle, window how long
// its idleness is then measured. Both are those of the trial this is compared with.
const (
	settle = time.Minute
	window = time.Minute
)

func program(b *testing.B) string {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	path, err := filepath.Abs("../../bin/playground")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		b.Fatalf("%v; build it with: make build", err)
	}
	return path
}

func playground(b *testing.B, args ...string) []byte {
	b.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(program(b), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		b.Fatalf("playground %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes()
}

// timed returns the seconds that a playground command takes.
func timed(b *testing.B, args ...string) float64 {
	b.Helper()
	start := time.Now()
	playground(b, args...)
	return time.Since(start).Seconds()
}

// up brings a scenario up after removing whatever was up, and takes it down at the end.
func up(b *testing.B, args ...string) float64 {
	b.Helper()
	playground(b, "down")
	b.Cleanup(func() { playground(b, "down") })
	return timed(b, append([]string{"up"}, args...)...)
}

func BenchmarkQuickStart(b *testing.B) {
	playground(b, "build")
	for b.Loop() {
		seconds := up(b, "quick-start")
		b.ReportMetric(seconds, "s/up")
		judge(b, "`up quick-start`, warm", seconds)
		time.Sleep(settle) // the definition of idle, not synchronisation
		b.ReportMetric(busy(b, window), "%-of-all-cores-idle")
		b.ReportMetric(pss(b, "rome.control-plane"), "MB-PSS/control-plane")
		b.ReportMetric(pss(b, "rome.rome-worker"), "MB-PSS/node")
		b.ReportMetric(pss(b, "rome.rome-control-plane"), "MB-PSS/node-with-addons")
		b.ReportMetric(pss(b, ""), "MB-PSS/all")
		b.ReportMetric(timed(b, "down"), "s/down")
	}
}

func BenchmarkControlPlaneOnly(b *testing.B) {
	playground(b, "build")
	for b.Loop() {
		b.ReportMetric(up(b, "control-plane-only"), "s/up")
		b.ReportMetric(timed(b, "down"), "s/down")
	}
}

func BenchmarkHollowNodes(b *testing.B) {
	playground(b, "build")
	for b.Loop() {
		b.ReportMetric(up(b, "scale"), "s/up-with-100-nodes")
		seconds := burst(b, 1000)
		b.ReportMetric(seconds, "s/1000-pods")
		judge(b, "1,000 hollow pods Ready", seconds)
		b.ReportMetric(timed(b, "down"), "s/down-with-1000-pods")
	}
}

// BenchmarkColdBuild uses caches of its own, so the machine's stay warm. Modules are
// downloaded already: the network is not what is measured.
func BenchmarkColdBuild(b *testing.B) {
	if !*cold {
		b.Skip("ten to fifteen minutes; run with -cold")
	}
	for b.Loop() {
		dir := b.TempDir()
		b.Setenv("GOCACHE", filepath.Join(dir, "go"))
		b.ReportMetric(timed(b, "build", "--cache", filepath.Join(dir, "playground"))/60, "min/build")
	}
}

// judge reports whether a value meets its target in the list that all benchmarks share. A missed one fails nothing.
func judge(b *testing.B, measure string, value float64) {
	b.Helper()
	list, err := os.ReadFile("../../test/bench/targets/targets.txt") // of another module, which this one does not import
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		text, found := strings.CutPrefix(strings.TrimSpace(line), "playground | "+measure+" | ≤ ")
		if !found {
			continue
		}
		number, _, _ := strings.Cut(text, " ")
		most, err := strconv.ParseFloat(number, 64)
		if err != nil {
			b.Fatalf("target %q of %s: %v", text, measure, err)
		}
		if value > most {
			b.Logf("MISSED: %s takes %.1f, and the target is %s", measure, value, text)
		}
		return
	}
	b.Fatalf("there is no target for %s", measure)
}

// burst creates a Deployment on the provider's hollow nodes and returns the seconds until
// all its pods are Ready.
func burst(b *testing.B, pods int) float64 {
	b.Helper()
	var status struct{ Bin string }
	if err := json.Unmarshal(playground(b, "status", "-o", "json"), &status); err != nil {
		b.Fatal(err)
	}
	kubeconfig := strings.TrimSpace(string(playground(b, "kubeconfig", "--path", "provider")))
	kubectl := func(stdin string, args ...string) {
		b.Helper()
		cmd := exec.Command(filepath.Join(status.Bin, "kubectl"), append([]string{"--kubeconfig", kubeconfig}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	manifest := fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"burst","namespace":"default"},"spec":{"replicas":%d,
"selector":{"matchLabels":{"app":"burst"}},"template":{"metadata":{"labels":{"app":"burst"}},"spec":{"automountServiceAccountToken":false,
"nodeSelector":{"type":"kwok"},"containers":[{"name":"c","image":"playground.local/demo:1"}]}}}}`, pods)
	start := time.Now()
	kubectl(manifest, "create", "-f", "-")
	kubectl("", "rollout", "status", "deployment/burst", "--timeout=120s")
	return time.Since(start).Seconds()
}

// busy returns the share, in percent of all cores, that the machine was not idle.
func busy(b *testing.B, window time.Duration) float64 {
	b.Helper()
	read := func() (idle, total float64) {
		data, err := os.ReadFile("/proc/stat")
		if err != nil {
			b.Fatal(err)
		}
		line, _, _ := strings.Cut(string(data), "\n")
		for i, field := range strings.Fields(line)[1:] {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				b.Fatal(err)
			}
			if i < 8 { // guest times are part of user times
				total += v
			}
			if i == 3 || i == 4 {
				idle += v
			}
		}
		return idle, total
	}
	idle, total := read()
	time.Sleep(window) // the length of the measurement
	idle2, total2 := read()
	return 100 * (1 - (idle2-idle)/(total2-total))
}

// pss returns the memory of a machine's processes ("" for all) in megabytes, each shared
// page divided by its users.
func pss(b *testing.B, name string) float64 {
	b.Helper()
	pids, err := machine.Processes(filepath.Join(topology.Cgroup, name))
	if err != nil {
		b.Fatal(err)
	}
	if len(pids) == 0 {
		b.Fatalf("machine %q has no processes", name)
	}
	var kB float64
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // it ended meanwhile
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "Pss:" {
				v, err := strconv.ParseFloat(fields[1], 64)
				if err != nil {
					b.Fatal(err)
				}
				kB += v
			}
		}
	}
	return kB / 1000
}
