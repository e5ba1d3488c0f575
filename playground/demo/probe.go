// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"liqo.io/liqo/playground/demo/command"
)

// try is one attempt of a probe. Numbers start at 1.
type try struct {
	Number int     `json:"number"`
	OK     bool    `json:"ok"`
	RTT    float64 `json:"rttMs"`            // also of a failure: how long it took to fail
	Detail string  `json:"detail,omitempty"` // what was seen
	Error  string  `json:"error,omitempty"`
}

// probeReport is the result of demo probe.
type probeReport struct {
	Kind    string       `json:"kind"`
	Target  string       `json:"target"`
	Tries   []try        `json:"tries"`
	Summary probeSummary `json:"summary"`
}

// probeSummary counts tries; times are of those that were answered.
type probeSummary struct {
	Sent        int     `json:"sent"`
	Answered    int     `json:"answered"`
	LossPercent float64 `json:"lossPercent"`
	Min         float64 `json:"minMs"`
	Mean        float64 `json:"avgMs"`
	Max         float64 `json:"maxMs"`
}

// prober makes one attempt and returns what it saw.
type prober func(ctx context.Context) (detail string, err error)

type probePlan struct {
	count             int
	interval, timeout time.Duration
	require           string
	output            string
}

func probe(ctx context.Context, c command.Call) error {
	var plan probePlan
	var options proberOptions
	flags := flag.NewFlagSet("probe tcp|http|udp|dns TARGET", flag.ContinueOnError)
	flags.IntVar(&plan.count, "count", 4, "number of tries")
	flags.DurationVar(&plan.interval, "interval", time.Second, "time from the start of one try to the next")
	flags.DurationVar(&plan.timeout, "timeout", time.Second, "longest time for one try")
	flags.StringVar(&plan.require, "require", "all", "tries that must be answered for exit code 0: all, any or none")
	flags.StringVar(&options.server, "server", "", "dns: `address` of the server to ask, e.g. 10.96.0.10:53; default: resolv.conf")
	flags.IntVar(&options.status, "status", 0, "http: status `code` that counts as answered; default: any 2xx or 3xx")
	flags.BoolVar(&options.insecure, "insecure", false, "http: accept any certificate")
	output := outputFlag(flags)
	positional, err := c.Parse(flags)
	if err != nil {
		return err
	}
	plan.output = *output
	if len(positional) != 2 {
		return fmt.Errorf("%w: want a kind (tcp, http, udp, dns) and a target, got %q", command.ErrUsage, positional)
	}
	kind, target := positional[0], positional[1]
	attempt, err := newProber(kind, target, options)
	if err := errors.Join(err, plan.validate()); err != nil {
		return fmt.Errorf("%w: %w", command.ErrUsage, err)
	}
	report := probeReport{Kind: kind, Target: target}
	report.Tries = plan.run(ctx, attempt, func(t try) {
		if plan.output == "text" {
			// If the output is closed, the summary's error below ends the command.
			fmt.Fprintln(c.Stdout, t.text(kind, target)) //nolint:errcheck // see above
		}
	})
	report.Summary = summarise(report.Tries)
	if err := report.print(c.Stdout, plan.output); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return plan.judge(report.Summary)
}

func (p probePlan) validate() error {
	if p.count < 1 || p.interval < 0 || p.timeout <= 0 {
		return fmt.Errorf("--count %d --interval %s --timeout %s: want positive numbers", p.count, p.interval, p.timeout)
	}
	if p.require != "all" && p.require != "any" && p.require != "none" {
		return fmt.Errorf("--require is %q; want all, any or none", p.require)
	}
	return validOutput(p.output)
}

// run makes the tries one after the other and hands over each as it ends. When ctx
// ends, a try under way is dropped, since it proves nothing about the target.
func (p probePlan) run(ctx context.Context, attempt prober, report func(try)) []try {
	var tries []try
	for number := 1; number <= p.count; number++ {
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, p.timeout)
		detail, err := attempt(limited)
		cancel()
		if ctx.Err() != nil {
			break
		}
		t := try{Number: number, OK: err == nil, RTT: milliseconds(time.Since(start)), Detail: detail}
		if err != nil {
			t.Error = err.Error()
		}
		tries = append(tries, t)
		report(t)
		if number < p.count {
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(start.Add(p.interval))):
			}
		}
	}
	return tries
}

func summarise(tries []try) probeSummary {
	s := probeSummary{Sent: len(tries)}
	var sum float64
	for _, t := range tries {
		if !t.OK {
			continue
		}
		if s.Answered == 0 || t.RTT < s.Min {
			s.Min = t.RTT
		}
		s.Max = max(s.Max, t.RTT)
		s.Answered++
		sum += t.RTT
	}
	if s.Answered > 0 {
		s.Mean = sum / float64(s.Answered)
	}
	if s.Sent > 0 {
		s.LossPercent = 100 * float64(s.Sent-s.Answered) / float64(s.Sent)
	}
	return s
}

// judge decides the exit code. No try at all proves nothing, so it never passes.
func (p probePlan) judge(s probeSummary) error {
	passed := map[string]bool{
		"all":  s.Answered == s.Sent,
		"any":  s.Answered > 0,
		"none": s.Answered == 0,
	}[p.require]
	if passed && s.Sent > 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of %d tries answered, required: %s", errNotMet, s.Answered, s.Sent, p.require)
}

func (t try) text(kind, target string) string {
	result, detail := "ok", t.Detail
	if !t.OK {
		result, detail = "FAILED", t.Error
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s %s: %s %.3f ms %s", t.Number, kind, target, result, t.RTT, detail))
}

func (r probeReport) print(w io.Writer, output string) error {
	if output == "json" {
		return printJSON(w, r)
	}
	s := r.Summary
	_, err := fmt.Fprintf(w, "%s %s: %d sent, %d answered, %.1f %% lost, min/avg/max %.3f/%.3f/%.3f ms\n",
		r.Kind, r.Target, s.Sent, s.Answered, s.LossPercent, s.Min, s.Mean, s.Max)
	return err
}
