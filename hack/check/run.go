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
	"strings"
	"time"
)

// interruptedFor is how long a command may take to clean up after Ctrl-C: the
// end-to-end tests take their clusters away.
const interruptedFor = 60 * time.Second

// run runs the stages in order. A failed stage does not stop the next ones,
// except those that are not worth it any more.
func run(ctx context.Context, plan []stage, out io.Writer) []result {
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
		began := time.Now()
		var kept bytes.Buffer
		for _, c := range s.commands {
			if r.err = runCommand(ctx, c, &env, io.MultiWriter(out, &kept)); r.err != nil {
				fmt.Fprintf(out, "check: %v\n", r.err)
				break
			}
		}
		r.took, r.output = time.Since(began), kept.String()
		results = append(results, r)
	}
	return results
}

func runCommand(ctx context.Context, c command, env *[]string, out io.Writer) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Env = c.dir, *env
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, &said), out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = interruptedFor
	line := strings.Join(c.args, " ")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%.120s: %w", line, err)
	}
	if c.silent && said.Len() > 0 {
		return errors.New("these files want to be mended")
	}
	if c.assets {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		dir := lines[len(lines)-1]
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("%s printed %q, which is no directory", line, dir)
		}
		*env = append(*env, "KUBEBUILDER_ASSETS="+dir)
	}
	return nil
}

// summary repeats the end of what failed, then one line for each stage.
func summary(results []result) string {
	var text strings.Builder
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(&text, "\n==> %s FAILED: %v\n%s", r.stage.name, r.err, interesting(r.output))
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

// interesting drops what `go test` says about packages and tests that passed,
// and keeps the end of the rest.
func interesting(output string) string {
	const keep = 80
	var lines []string
	for line := range strings.Lines(output) {
		switch word := strings.TrimSpace(line); {
		case strings.HasPrefix(word, "=== "), strings.HasPrefix(word, "--- PASS"), strings.HasPrefix(word, "ok  "), strings.HasPrefix(line, "?   "):
		default:
			lines = append(lines, line)
		}
	}
	if len(lines) > keep {
		lines = append([]string{"[...]\n"}, lines[len(lines)-keep:]...)
	}
	return strings.Join(lines, "")
}
