// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// process is one of the clusters', found by its control group.
type process struct {
	number  int
	cluster string
	role    string // program, and of ours the first argument
	ours    bool
}

// processes are all of the playground's.
func processes(t testing.TB) (all []process) {
	t.Helper()
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
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
			t.Fatal(err)
		}
		words := strings.Split(string(line), "\x00")
		cluster, _, _ := strings.Cut(path, ".")
		p := process{number: number, cluster: cluster, role: filepath.Base(words[0])}
		if p.role == "liqo" && len(words) > 1 {
			p.ours, p.role = true, words[1]
		}
		all = append(all, p)
	}
	return all
}

func (p process) label() string { return p.role + " " + p.cluster }

// ticks is the unit of processor time in /proc, USER_HZ: 100 on all Linux that we know.
const ticks = 100

// usage is the processor time of processes so far.
type usage struct {
	seconds map[process]float64
	machine float64 // of everything on this machine
}

func used(t testing.TB) usage {
	t.Helper()
	u := usage{seconds: map[process]float64{}}
	for _, p := range processes(t) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.number))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		user, _ := strconv.ParseFloat(fields[11], 64)
		system, _ := strconv.ParseFloat(fields[12], 64)
		u.seconds[p] = (user + system) / ticks
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	for i, field := range strings.Fields(string(first))[1:9] {
		if value, _ := strconv.ParseFloat(field, 64); i != 3 && i != 4 { // idle, waiting for disks
			u.machine += value / ticks
		}
	}
	return u
}

// cpu is processor time spent in a window, in seconds.
type cpu struct {
	Ours, Kubernetes, Machine float64
	By                        map[string]float64 `json:",omitempty"`
}

// since is what was used from then to now. A process that came meanwhile counts in full.
func (u usage) since(before usage) cpu {
	c := cpu{By: map[string]float64{}, Machine: u.machine - before.machine}
	for p, seconds := range u.seconds {
		spent := seconds - before.seconds[p]
		switch {
		case spent <= 0:
			continue
		case p.ours:
			c.Ours += spent
		default:
			c.Kubernetes += spent
		}
		c.By[p.label()] += spent
	}
	return c
}

// memory is what our processes hold, in MiB: resident, anonymous, and their share of what is shared.
type memory struct {
	RSS, Anonymous, PSS float64
	By                  map[string][3]float64 `json:",omitempty"`
}

func held(t testing.TB) memory {
	t.Helper()
	sum := memory{By: map[string][3]float64{}}
	for _, p := range processes(t) {
		if !p.ours {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.number))
		if err != nil {
			t.Logf("memory of %s is not counted: %v", p.label(), err)
			continue
		}
		had := sum.By[p.label()]
		lines := bufio.NewScanner(bytes.NewReader(text))
		for lines.Scan() {
			words := strings.Fields(lines.Text())
			if i := slices.Index([]string{"Rss:", "Anonymous:", "Pss:"}, words[0]); i >= 0 && len(words) > 1 {
				kilo, _ := strconv.ParseFloat(words[1], 64)
				had[i] += kilo / 1024
			}
		}
		sum.By[p.label()] = had
	}
	for _, values := range sum.By {
		sum.RSS, sum.Anonymous, sum.PSS = sum.RSS+values[0], sum.Anonymous+values[1], sum.PSS+values[2]
	}
	return sum
}

// of is one role's resident memory.
func (m memory) of(role string) (rss float64) {
	for label, values := range m.By {
		if strings.HasPrefix(label, role+" ") {
			rss += values[0]
		}
	}
	return rss
}

func (m memory) String() string {
	var text strings.Builder
	for _, label := range slices.Sorted(maps.Keys(m.By)) {
		v := m.By[label]
		fmt.Fprintf(&text, "| %s | %.0f / %.0f / %.0f |\n", label, v[0], v[1], v[2])
	}
	fmt.Fprintf(&text, "| all | %.0f / %.0f / %.0f |\n", m.RSS, m.Anonymous, m.PSS)
	return text.String()
}

// link counts the bytes between the nodes of two clusters, where all that passes between them comes by.
type link struct{ place env.Place }

// passed is how many bytes went each way.
type passed struct{ To, Back float64 }

const linkTable = "offload_bench"

func count(t testing.TB, consumer, provider *env.Cluster) *link {
	t.Helper()
	l := &link{env.Router()}
	l.place.Try("nft", "delete", "table", "ip", linkTable) // of a run that was broken off
	rule := func(from, to *env.Cluster, name string) string {
		return fmt.Sprintf("add rule ip %s passing ip saddr %s ip daddr %s counter name %s; ", linkTable, from.NodeCIDR, to.NodeCIDR, name)
	}
	l.place.Run(t, "nft", fmt.Sprintf("add table ip %[1]s; add counter ip %[1]s to; add counter ip %[1]s back; "+
		"add chain ip %[1]s passing { type filter hook forward priority 0; policy accept; }; ", linkTable)+
		rule(consumer, provider, "to")+rule(provider, consumer, "back"))
	t.Cleanup(func() { l.place.Try("nft", "delete", "table", "ip", linkTable) })
	return l
}

func (l *link) passed(t testing.TB) (sum passed) {
	t.Helper()
	var said struct {
		Nftables []struct {
			Counter *struct {
				Name  string
				Bytes float64
			}
		}
	}
	if err := json.Unmarshal([]byte(l.place.Run(t, "nft", "-j", "list", "counters", "table", "ip", linkTable)), &said); err != nil {
		t.Fatal(err)
	}
	for _, entry := range said.Nftables {
		switch {
		case entry.Counter == nil:
		case entry.Counter.Name == "to":
			sum.To = entry.Counter.Bytes
		case entry.Counter.Name == "back":
			sum.Back = entry.Counter.Bytes
		}
	}
	return sum
}

func (p passed) since(before passed) passed { return passed{p.To - before.To, p.Back - before.Back} }
