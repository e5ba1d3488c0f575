// SPDX-License-Identifier: Apache-2.0

// Command check runs the stages of `make test` one after the other, says how
// long each took, and ends with what failed, so that nobody has to scroll.
//
// stages.go decides which stages there are and what each runs, without looking
// at the world; run.go runs them. It must not know what the tests test. Its
// proof is check_test.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	found, err := look(ctx)
	if err != nil {
		return err
	}
	plan, err := stages(args[0], found)
	if err != nil {
		return err
	}
	results := run(ctx, plan, os.Stdout)
	fmt.Print(summary(results))
	if failed(results) {
		return errors.New("not all stages passed")
	}
	return ctx.Err()
}

// look collects what the plan depends on.
func look(ctx context.Context) (facts, error) {
	found := facts{root: os.Geteuid() == 0}
	for _, dir := range modulesWithCode {
		list := exec.CommandContext(ctx, "go", "list", "-e", "-f", "{{.ImportPath}} {{.Dir}}", "./...")
		list.Dir, list.Stderr = dir, os.Stderr
		output, err := list.Output()
		if err != nil {
			return facts{}, fmt.Errorf("list packages of module %s: %w", dir, err)
		}
		module := module{dir: dir}
		for line := range strings.Lines(string(output)) {
			path, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			module.packages = append(module.packages, path)
		}
		found.modules = append(found.modules, module)
	}
	for name, there := range map[string]*bool{"e2e": &found.e2e, "bench": &found.bench} {
		_, err := os.Stat(filepath.Join("playground", name))
		*there = err == nil
	}
	return found, nil
}

// result is what became of one stage.
type result struct {
	stage   stage
	took    time.Duration
	skipped string // reason, empty if it ran
	err     error
	output  string
}

func failed(results []result) bool {
	for _, r := range results {
		if r.err != nil {
			return true
		}
	}
	return false
}
