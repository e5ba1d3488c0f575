// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/process"
)

// all are the processes of the playground's clusters.
func all(t testing.TB) []process.Process {
	t.Helper()
	found, err := process.All()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// ticks is USER_HZ, the number of units of processor time per second in /proc: 100 on all usual Linux systems.
const ticks = 100

// usage is the processor time that processes have used so far.
type usage struct {
	seconds map[process.Process]float64
	machine float64 // of everything on this machine
}

func used(t testing.TB) usage {
	t.Helper()
	u := usage{seconds: map[process.Process]float64{}}
	for _, p := range all(t) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Number))
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
	Liqo, Kubernetes, Machine float64
	By                        map[string]float64 `json:",omitempty"`
}

// since returns the processor time used since an earlier measurement. A process that started meanwhile counts in full.
func (u usage) since(before usage) cpu {
	c := cpu{By: map[string]float64{}, Machine: u.machine - before.machine}
	for p, seconds := range u.seconds {
		spent := seconds - before.seconds[p]
		switch {
		case spent <= 0:
			continue
		case p.Liqo:
			c.Liqo += spent
		default:
			c.Kubernetes += spent
		}
		c.By[p.Label()] += spent
	}
	return c
}

// memory is the memory of Liqo's processes in MiB: resident, anonymous, and proportional (PSS).
type memory struct {
	RSS, Anonymous, PSS float64
	By                  map[string][3]float64 `json:",omitempty"`
}

func memoryNow(t testing.TB) memory {
	t.Helper()
	sum := memory{By: map[string][3]float64{}}
	for _, p := range all(t) {
		if !p.Liqo {
			continue
		}
		now, err := p.Memory()
		if err != nil {
			t.Logf("memory of %s is not counted: %v", p.Label(), err)
			continue
		}
		had := sum.By[p.Label()]
		for i, value := range []float64{now.RSS, now.Anonymous, now.PSS} {
			had[i] += value
		}
		sum.By[p.Label()] = had
	}
	for _, values := range sum.By {
		sum.RSS, sum.Anonymous, sum.PSS = sum.RSS+values[0], sum.Anonymous+values[1], sum.PSS+values[2]
	}
	return sum
}

// of returns the resident memory of one role.
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

// byteCounters count the bytes between the nodes of two clusters, on the router between them.
type byteCounters struct{ router netns.Place }

// transferred is the number of bytes from the consumer to the provider, and back.
type transferred struct{ To, Back float64 }

const countersTable = "offload_bench"

func countBytes(t testing.TB, consumer, provider *env.Cluster) *byteCounters {
	t.Helper()
	c := &byteCounters{netns.Router()}
	c.router.Try("nft", "delete", "table", "ip", countersTable) // left by an interrupted run
	rule := func(from, to *env.Cluster, name string) string {
		return fmt.Sprintf("add rule ip %s passing ip saddr %s ip daddr %s counter name %s; ", countersTable, from.NodeCIDR, to.NodeCIDR, name)
	}
	c.router.Run(t, "nft", fmt.Sprintf("add table ip %[1]s; add counter ip %[1]s to; add counter ip %[1]s back; "+
		"add chain ip %[1]s passing { type filter hook forward priority 0; policy accept; }; ", countersTable)+
		rule(consumer, provider, "to")+rule(provider, consumer, "back"))
	t.Cleanup(func() { c.router.Try("nft", "delete", "table", "ip", countersTable) })
	return c
}

func (c *byteCounters) bytes(t testing.TB) (sum transferred) {
	t.Helper()
	var output struct {
		Nftables []struct {
			Counter *struct {
				Name  string
				Bytes float64
			}
		}
	}
	if err := json.Unmarshal([]byte(c.router.Run(t, "nft", "-j", "list", "counters", "table", "ip", countersTable)), &output); err != nil {
		t.Fatal(err)
	}
	for _, entry := range output.Nftables {
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

func (b transferred) since(before transferred) transferred {
	return transferred{b.To - before.To, b.Back - before.Back}
}
