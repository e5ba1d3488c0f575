// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"liqo.io/liqo/playground/demo/histogram"
)

// loadReport is the result of demo load. Latencies are in milliseconds, over all
// requests with or without an answer.
type loadReport struct {
	URL               string  `json:"url"`
	Seconds           float64 `json:"seconds"`
	Requests          int     `json:"requests"`
	OK                int     `json:"ok"`     // whole answer with status 2xx or 3xx
	Failed            int     `json:"failed"` // all others
	RequestsPerSecond float64 `json:"requestsPerSecond"`
	// NotSent are planned requests for which no worker was free before the end: then
	// the concurrency is too low for the rate and the latency.
	NotSent  int            `json:"notSent"`
	Latency  latencies      `json:"latencyMs"`
	Statuses map[string]int `json:"statuses"`
	Errors   map[string]int `json:"errors"`
	Pods     map[string]int `json:"pods"` // answers per pod, and so on
	Nodes    map[string]int `json:"nodes"`
	Clusters map[string]int `json:"clusters"`
}

type latencies struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// report adds up the counts of the workers.
func (p loadPlan) report(tallies []tally, took time.Duration) loadReport {
	report := loadReport{
		URL: p.url, Seconds: took.Round(time.Millisecond).Seconds(),
		Statuses: map[string]int{}, Errors: map[string]int{},
		Pods: map[string]int{}, Nodes: map[string]int{}, Clusters: map[string]int{},
	}
	var all histogram.Histogram
	for i := range tallies {
		t := &tallies[i]
		all.Merge(&t.latencies)
		report.Requests += t.requests
		report.OK += t.ok
		report.Failed += t.requests - t.ok
		for _, pair := range []struct{ into, from map[string]int }{
			{report.Statuses, t.statuses},
			{report.Errors, t.problems},
			{report.Pods, t.pods},
			{report.Nodes, t.nodes},
			{report.Clusters, t.clusters},
		} {
			for key, n := range pair.from {
				pair.into[key] += n
			}
		}
	}
	report.RequestsPerSecond = float64(report.Requests) / took.Seconds()
	report.NotSent = max(0, int(p.rate*p.duration.Seconds())-report.Requests)
	report.Latency = latencies{
		Min: milliseconds(all.Min), Mean: milliseconds(all.Mean()), Max: milliseconds(all.Max),
		P50: milliseconds(all.Quantile(0.50)), P90: milliseconds(all.Quantile(0.90)),
		P95: milliseconds(all.Quantile(0.95)), P99: milliseconds(all.Quantile(0.99)),
	}
	return report
}

func (r loadReport) print(w io.Writer, output string) error {
	if output == "json" {
		return printJSON(w, r)
	}
	_, err := io.WriteString(w, r.text())
	return err
}

func (r loadReport) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", r.URL)
	fmt.Fprintf(&out, "  requests  %d in %.1f s (%.1f/s), %d ok, %d failed, %d not sent\n",
		r.Requests, r.Seconds, r.RequestsPerSecond, r.OK, r.Failed, r.NotSent)
	l := r.Latency
	fmt.Fprintf(&out, "  latency   min %.2f  mean %.2f  p50 %.2f  p90 %.2f  p95 %.2f  p99 %.2f  max %.2f ms\n",
		l.Min, l.Mean, l.P50, l.P90, l.P95, l.P99, l.Max)
	for _, part := range []struct {
		title  string
		counts map[string]int
	}{
		{"status", r.Statuses}, {"error", r.Errors}, {"cluster", r.Clusters}, {"node", r.Nodes}, {"pod", r.Pods},
	} {
		for _, key := range slices.Sorted(maps.Keys(part.counts)) {
			n := part.counts[key]
			fmt.Fprintf(&out, "  %-9s %-40s %7d  %5.1f %%\n", part.title, key, n, 100*float64(n)/float64(max(1, r.Requests)))
		}
	}
	return out.String()
}

// outputFlag is the -o of commands that report; validOutput checks it.
func outputFlag(flags *flag.FlagSet) *string {
	return flags.String("o", "text", "output `format`: text or json")
}

func validOutput(output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("-o is %q; want text or json", output)
	}
	return nil
}

func printJSON(w io.Writer, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %T: %w", value, err)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
