// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// interruptedFor is how long a command may take to clean up after Ctrl-C: the
// end-to-end tests take their clusters away.
const interruptedFor = 60 * time.Second

// run runs the stages in order and records each one that has run. A failed stage does not stop the next ones,
// except those that are not worth it any more.
func run(ctx context.Context, plan []stage, out io.Writer, record func(result) error) []result {
	var results []result
	env := os.Environ()
	for _, s := range plan {
		r := result{stage: s, skipped: s.skip}
		switch {
		case r.skipped != "":
		case ctx.Err() != nil:
			r.skipped = "interrupted"
		case s.last && failed(results):
			r.skipped = "something failed before"
		}
		if r.skipped != "" {
			fmt.Fprintf(out, "==> %s: NOT RUN: %s\n", s.name, r.skipped)
			results = append(results, r)
			continue
		}
		fmt.Fprintf(out, "==> %s: %s\n", s.name, s.about)
		start := time.Now()
		var kept bytes.Buffer
		for _, c := range s.commands {
			if r.err = runCommand(ctx, c, &env, io.MultiWriter(out, &kept)); r.err != nil {
				fmt.Fprintf(out, "check: %v\n", r.err)
				break
			}
		}
		for _, c := range s.after {
			// Also after an interrupt: what the stage has made goes with it.
			if err := runCommand(context.WithoutCancel(ctx), c, &env, io.MultiWriter(out, &kept)); err != nil {
				r.err = errors.Join(r.err, err)
			}
		}
		r.took, r.output = time.Since(start), kept.String()
		if err := record(r); err != nil {
			r.err = errors.Join(r.err, err)
		}
		results = append(results, r)
	}
	return results
}

func runCommand(ctx context.Context, c command, env *[]string, out io.Writer) error {
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

// summary repeats the output of what failed, with the reason last because a log that is cut keeps its end; then one line for each stage.
func summary(results []result) string {
	var text strings.Builder
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(&text, "\n==> %s, output of what failed:\n%s==> %[1]s FAILED: %[3]v\n", r.stage.name, interesting(r.output), r.err)
		}
	}
	text.WriteString("\n")
	var total time.Duration
	for _, r := range results {
		total += r.took
		switch {
		case r.skipped != "":
			fmt.Fprintf(&text, "%-20s NOT RUN  %s\n", r.stage.name, r.skipped)
		case r.err != nil:
			fmt.Fprintf(&text, "%-20s FAILED   %s\n", r.stage.name, r.took.Round(100*time.Millisecond))
		default:
			fmt.Fprintf(&text, "%-20s passed   %s\n", r.stage.name, r.took.Round(100*time.Millisecond))
		}
	}
	fmt.Fprintf(&text, "%-20s          %s\n", "in total", total.Round(100*time.Millisecond))
	return text.String()
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
