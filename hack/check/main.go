// SPDX-License-Identifier: Apache-2.0

// Command check runs the stages of `make test` one after the other, reports how
// long each took, and ends with the output of what failed.
//
// stages.go and suites.go decide which stages there are and what each runs, as pure
// functions of what observe.go finds; run.go runs them; progress.go remembers which long suites have passed,
// so that an interrupted run can be continued; events.go keeps the results of tests in bin/results. It must not know what the tests test.
// Its proof is check_test.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := check(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func check(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one argument, one of: %s", strings.Join(groups(), " "))
	}
	group := args[0]
	found, err := observe(ctx, group)
	if err != nil {
		return err
	}
	plan, err := stages(group, found)
	if err != nil {
		return err
	}
	commit, noCommit := head(ctx, ".")
	record := func(result) error { return nil }
	if group == "long" {
		if noCommit != nil {
			return noCommit
		}
		p, err := readProgress(filepath.Join("bin", "test-long"), commit)
		if err != nil {
			return err
		}
		plan = p.remaining(plan)
		record = p.record
	}
	start := time.Now()
	ended := run(ctx, withResults(plan, commit), os.Stdout, record)
	fmt.Print(summary(ended, time.Since(start)))
	if failed(ended) {
		return errors.New("not all stages passed")
	}
	return ctx.Err()
}

// result is the outcome of one stage.
type result struct {
	stage   stage
	took    time.Duration
	skipped string // reason, empty if it ran
	err     error
	output  string
	tests   tally
}

func failed(results []result) bool {
	for _, r := range results {
		if r.err != nil {
			return true
		}
	}
	return false
}
