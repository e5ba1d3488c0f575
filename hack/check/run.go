// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// interruptedFor is how long a command may take to clean up after Ctrl-C: the
// end-to-end tests take their clusters away.
const interruptedFor = 60 * time.Second

// run runs the stages in order, neighbours with a lane at the same time as those of other lanes, and records each one that has run.
// A failed stage does not stop the next ones, except those that are not worth it any more.
func run(ctx context.Context, plan []stage, out io.Writer, record func(result) error) []result {
	results := make([]result, len(plan))
	env := os.Environ()
	for start := 0; start < len(plan); {
		lanes, next := abreast(plan, start)
		before := results[:start]
		// What several stages print at the same time is printed stage by stage.
		screen := &printer{out: out, whole: len(lanes) > 1}
		var running sync.WaitGroup
		for _, lane := range lanes {
			running.Go(func() {
				inLane := []result{}
				for _, i := range lane {
					results[i] = runStage(ctx, plan[i], failed(before) || failed(inLane), &env, screen)
					inLane = append(inLane, results[i])
				}
			})
		}
		running.Wait()
		for i := start; i < next; i++ {
			if r := &results[i]; r.skipped == "" {
				r.err = errors.Join(r.err, record(*r))
			}
		}
		start = next
	}
	return results
}

// abreast returns the stages that run at the same time as the one at start, by lane, and the first stage after them.
func abreast(plan []stage, start int) (lanes map[string][]int, next int) {
	lanes = map[string][]int{}
	for next = start; next == start || next < len(plan) && plan[start].lane != "" && plan[next].lane != ""; next++ {
		lanes[plan[next].lane] = append(lanes[plan[next].lane], next)
	}
	return lanes, next
}

// printer prints what stages print: as it comes, or whole once a stage has ended.
type printer struct {
	out   io.Writer
	whole bool
	mu    sync.Mutex
}

func (p *printer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(text)
}

func runStage(ctx context.Context, s stage, failed bool, env *[]string, screen *printer) result {
	r := result{stage: s, skipped: s.skip}
	switch {
	case r.skipped != "":
	case ctx.Err() != nil && !s.always:
		r.skipped = "interrupted"
	case s.last && failed:
		r.skipped = "something failed before"
	}
	if r.skipped != "" {
		fmt.Fprintf(screen, "==> %s: NOT RUN: %s\n", s.name, r.skipped)
		return r
	}
	var kept bytes.Buffer
	out := &printer{out: io.MultiWriter(screen, &kept)} // standard output and standard error are copied at the same time
	if screen.whole {
		out.out = &kept
		fmt.Fprintf(screen, "==> %s: %s; its output follows at its end\n", s.name, s.about)
	} else {
		fmt.Fprintf(screen, "==> %s: %s\n", s.name, s.about)
	}
	if s.always {
		ctx = context.WithoutCancel(ctx)
	}
	start := time.Now()
	for _, c := range s.commands {
		c.results.tests = &r.tests
		if r.err = runCommand(ctx, c, env, out); r.err != nil {
			fmt.Fprintf(out, "check: %v\n", r.err)
			break
		}
	}
	for _, c := range s.after {
		// Also after an interrupt: what the stage has made goes with it.
		r.err = errors.Join(r.err, runCommand(context.WithoutCancel(ctx), c, env, out))
	}
	if refused := r.tests.refused(s.skips); s.skips != nil && len(refused) > 0 {
		err := fmt.Errorf("tests were skipped for reasons that %s does not have: %s", acceptedPath, strings.Join(refused, "; "))
		fmt.Fprintf(out, "check: %v\n", err)
		r.err = errors.Join(r.err, err)
	}
	r.took, r.output = time.Since(start), kept.String()
	if screen.whole {
		fmt.Fprintf(screen, "%s==> %s: ended after %s\n", r.output, s.name, r.took.Round(time.Second))
	}
	return r
}

// runTests runs a command whose results are kept.
func runTests(ctx context.Context, c command, env *[]string, out io.Writer) error {
	kept, err := keep(c.results, slices.Contains(c.args, "-v"), out)
	if err != nil {
		return err
	}
	c.args, c.results = slices.Insert(slices.Clone(c.args), 2, "-json"), results{}
	return errors.Join(runCommand(ctx, c, env, kept), kept.Close())
}

func runCommand(ctx context.Context, c command, env *[]string, out io.Writer) error {
	if c.results.path != "" {
		return runTests(ctx, c, env, out)
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Env = c.dir, slices.Concat(*env, c.env)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &output), out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptedFor
	line := strings.Join(c.args, " ")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%.120s: %w", line, err)
	}
	if c.silent && output.Len() > 0 {
		return errors.New("these files need the repair that the line of the stage names")
	}
	if c.assets {
		lines := strings.Split(strings.TrimSpace(output.String()), "\n")
		dir := lines[len(lines)-1]
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("%s printed %q, which is no directory", line, dir)
		}
		*env = append(*env, "KUBEBUILDER_ASSETS="+dir)
	}
	return nil
}

// summary repeats the output of what failed, with the reason last because a log that is cut keeps its end; then one line for each stage. Some ran at
// the same time, so the total is given.
func summary(results []result, total time.Duration) string {
	var text strings.Builder
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(&text, "\n==> %s, output of what failed:\n%s==> %[1]s FAILED: %[3]v\n", r.stage.name, interesting(r.output), r.err)
		}
	}
	text.WriteString("\n")
	for _, r := range results {
		switch {
		case r.skipped != "":
			fmt.Fprintf(&text, "%-20s NOT RUN  %s\n", r.stage.name, r.skipped)
		case r.err != nil:
			text.WriteString(line(r, "FAILED"))
		default:
			text.WriteString(line(r, "passed"))
		}
	}
	fmt.Fprintf(&text, "%-20s          %s\n", "in total", total.Round(100*time.Millisecond))
	text.WriteString(withoutClusters(results))
	return text.String()
}

// line is how long a stage took, and which of its tests were skipped.
func line(r result, outcome string) string {
	text := fmt.Sprintf("%-20s %-8s %-9s %s", r.stage.name, outcome, r.took.Round(100*time.Millisecond), &r.tests)
	text = strings.TrimRight(text, " ") + "\n"
	for _, reason := range slices.Sorted(maps.Keys(r.tests.reasons)) {
		text += fmt.Sprintf("%-20s          %d skipped: %.150s\n", "", r.tests.reasons[reason], reason)
	}
	return text
}

// withoutClusters is the last line of a run whose stages on clusters did not run: a green run without them shows less than it seems.
func withoutClusters(results []result) string {
	var all []string
	for _, r := range results {
		if r.stage.skip == needsRoot {
			all = append(all, fmt.Sprintf("%s (%s)", r.stage.name, r.stage.about))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("NO CLUSTER WAS USED, because %s. This run shows nothing of: %s.\n", needsRoot, strings.Join(all, "; "))
}

// interesting returns what `go test` printed of what failed, without packages and tests that passed: the start, which holds the reason, and
// the end.
func interesting(output string) string {
	const head, tail = 60, 60
	var lines []string
	for _, one := range packages(output) {
		lines = append(lines, failures(one)...)
	}
	if len(lines) > head+tail {
		lines = slices.Concat(lines[:head], []string{"[...]\n"}, lines[len(lines)-tail:])
	}
	return strings.Join(lines, "")
}

// packages are the outputs of the packages that did not pass, and what comes after the last one.
func packages(output string) (all []string) {
	var one strings.Builder
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "ok  ") || strings.HasPrefix(line, "?   ") {
			one.Reset()
			continue
		}
		one.WriteString(line)
		if strings.HasPrefix(line, "FAIL\t") {
			all = append(all, one.String())
			one.Reset()
		}
	}
	return append(all, one.String())
}

// failures drops what tests that passed have logged in between.
func failures(output string) (lines []string) {
	type entry struct{ test, line string }
	var all []entry
	failed, test := map[string]bool{"": true}, ""
	for line := range strings.Lines(output) {
		words := strings.Fields(line)
		switch {
		case len(words) > 2 && words[0] == "===":
			test = words[2]
			continue
		case len(words) > 2 && words[0] == "---":
			if test = words[2]; words[1] != "FAIL:" {
				continue
			}
			failed[test] = true
		case strings.HasPrefix(line, "FAIL"), strings.HasPrefix(line, "PASS"):
			test = ""
		}
		all = append(all, entry{test, line})
	}
	for _, one := range all {
		if failed[one.test] {
			lines = append(lines, one.line)
		}
	}
	return lines
}
