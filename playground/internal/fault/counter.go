// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Verdicts of counted packets.
const (
	Passed  = "passed"
	Dropped = "dropped"
)

// passed starts the words of a rule that counts packets which pass.
const passed = Passed + " "

// Counter is how many packets of one direction of a link were treated alike, since the faults of any link were last changed.
type Counter struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Verdict string `json:"verdict"`
	// What names the packets: the fault that dropped them, or what a closed link let through.
	What    string `json:"what"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// ReadCounters reads the counters of the links that join all the given sites (as Clear) from the output of
// `nft -j list ruleset`, in the order of the plan.
func ReadCounters(ruleset []byte, sites ...string) ([]Counter, error) {
	var listing struct {
		Objects []struct {
			Rule struct {
				Table, Comment string
				Expr           []struct {
					Counter *struct{ Packets, Bytes uint64 }
				}
			}
		} `json:"nftables"`
	}
	if err := json.Unmarshal(ruleset, &listing); err != nil {
		return nil, fmt.Errorf("read the counters of nftables: %w", err)
	}
	counters := []Counter{}
	for _, object := range listing.Objects {
		rule := object.Rule
		link, what, named := strings.Cut(rule.Comment, ": ")
		from, to, both := strings.Cut(link, " -> ")
		if rule.Table != Table || !named || !both || slices.ContainsFunc(sites, func(site string) bool { return site != from && site != to }) {
			continue
		}
		counter := Counter{From: from, To: to, Verdict: Dropped, What: what}
		if rest, found := strings.CutPrefix(what, passed); found {
			counter.Verdict, counter.What = Passed, rest
		}
		for _, e := range rule.Expr {
			if e.Counter != nil {
				counter.Packets, counter.Bytes = e.Counter.Packets, e.Counter.Bytes
			}
		}
		counters = add(counters, counter)
	}
	return counters, nil
}

// add sums what several rules count: a partition, for one, drops by address and by interface.
func add(counters []Counter, c Counter) []Counter {
	for i, old := range counters {
		if old.From == c.From && old.To == c.To && old.Verdict == c.Verdict && old.What == c.What {
			counters[i].Packets += c.Packets
			counters[i].Bytes += c.Bytes
			return counters
		}
	}
	return append(counters, c)
}
