// SPDX-License-Identifier: Apache-2.0

// Command mutants reports how much the tests of packages that decide would notice: it changes one condition at a time, runs the tests of the package alone,
// and reports the share of changes that some test fails for, and each change that none does.
//
//	go run ./hack/mutants                          # all packages of the list
//	go run ./hack/mutants ./internal/network/ipam  # some
//	go run ./hack/mutants -run 'TestSteps|TestThere' ./internal/storage/move/plan  # without those that take long
//	go run ./hack/mutants -again FILE ./internal/network/ipam  # those that no test failed for, as an earlier run printed them
//
// All changes of a package are compiled into one test program, which gets the number of the one to make in a variable. points.go decides what is
// changed, as a pure function of a file's text. Changes that make no difference, so that no test can notice them, are in equivalent.txt
// (equivalent.go) and do not count. The command must not know what the tests test. Its proof is points_test.go.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pure are packages that decide and have no effects, so that their own tests have to show all of it.
var pure = []string{
	"./internal/network/ipam", "./internal/network/plan", "./internal/network/plan/carriers",
	"./internal/offloading/choice", "./internal/offloading/lifecycle", "./internal/offloading/podplan", "./internal/offloading/shadow",
	"./internal/peering/grant", "./internal/peering/reach", "./internal/storage/data", "./internal/storage/move/plan",
}

// target is the share that the tests are to notice, in percent.
const target = 90

var (
	// only are the tests that run.
	only = flag.String("run", "", "run only the tests that match, as with go test")
	// again is a file with what an earlier run printed.
	again = flag.String("again", "", "try only the changes that no test failed for, by the output of an earlier run")
)

func main() {
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	packages := flag.Args()
	if len(packages) == 0 {
		packages = pure
	}
	if err := all(ctx, packages); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func all(ctx context.Context, packages []string) error {
	same, err := parseEquivalent(equivalent)
	if err != nil {
		return err
	}
	var earlier map[string]bool
	if *again != "" {
		text, err := os.ReadFile(*again)
		if err != nil {
			return err
		}
		earlier = survivors(string(text))
	}
	var text strings.Builder
	for _, path := range packages {
		survivors, tried, err := try(ctx, path, same, earlier)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		share := 100.0
		if tried > 0 {
			share = 100 * float64(tried-survivors) / float64(tried)
		}
		fmt.Fprintf(&text, "%-36s %4d of %4d changes noticed, %3.0f %%, target %d %%\n", path, tried-survivors, tried, share, target)
		if ctx.Err() != nil {
			fmt.Fprintf(&text, "interrupted in %s\n", path)
			break
		}
	}
	fmt.Print("\n", text.String())
	return nil
}

// try runs the tests of a package once for each change, and prints those that none fails for. Those that make no difference do not count, and those that an
// earlier run saw noticed are not tried again.
func try(ctx context.Context, path string, same map[string]string, earlier map[string]bool) (survivors, tried int, err error) {
	folder, err := goList(ctx, path, "{{.Dir}}")
	if err != nil {
		return 0, 0, err
	}
	work, err := os.MkdirTemp("", "liqo-mutants-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(work) //nolint:errcheck // of the system's folder for such files
	points, replaced, err := changed(ctx, path, folder, work)
	if err != nil || len(points) == 0 {
		return 0, 0, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return 0, 0, err
	}
	list, program := filepath.Join(work, "overlay.json"), filepath.Join(work, "test")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return 0, 0, err
	}
	if output, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", list, "-o", program, path).CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("%w: %s", err, output)
	}
	start := time.Now()
	if output, err := tests(ctx, program, folder, 0, time.Hour); err != nil {
		return 0, 0, fmt.Errorf("without a change: %w: %s", err, output)
	}
	most := 10*time.Since(start) + 10*time.Second
	if names := stale(path, points, same); len(names) > 0 {
		return 0, 0, fmt.Errorf("equivalent.txt names changes that do not exist: %s", strings.Join(names, ", "))
	}
	for i, p := range points {
		_, equal := same[p.name()]
		if earlier != nil && !earlier[p.name()] {
			continue
		}
		_, err := tests(ctx, program, folder, i+1, most)
		switch {
		case ctx.Err() != nil:
			return survivors, tried, nil
		case equal && err != nil:
			fmt.Printf("%s: a test fails if %s, although it makes no difference by equivalent.txt\n", p.where(), p.what)
		case equal:
			continue
		case err == nil:
			survivors++
			fmt.Printf("%s%s%s\n", p.where(), noTest, p.what)
		}
		tried++
	}
	return survivors, tried, nil
}

// changed writes the files of a package with all changes in them, and the one that chooses among them. replaced are the files in whose place they are compiled.
func changed(ctx context.Context, path, folder, work string) (points []point, replaced map[string]string, err error) {
	names, err := goList(ctx, path, `{{.Name}} {{join .GoFiles " "}}`)
	if err != nil {
		return nil, nil, err
	}
	words := strings.Fields(names)
	replaced = map[string]string{}
	write := func(name, text string) error {
		to := filepath.Join(work, name)
		replaced[filepath.Join(folder, name)] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	for _, name := range words[1:] {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, nil, err
		}
		some, mutated, err := mutate(strings.TrimPrefix(path, "./")+"/"+name, string(text), len(points)+1)
		if err == nil {
			err = write(name, mutated)
		}
		if err != nil {
			return nil, nil, err
		}
		points = append(points, some...)
	}
	return points, replaced, write("chooses_mutant.go", fmt.Sprintf(chooses, words[0]))
}

// tests runs a program of tests with one change; 0 is none.
func tests(ctx context.Context, program, folder string, number int, most time.Duration) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(limited, program, "-test.failfast", "-test.short", "-test.run="+*only)
	cmd.Dir, cmd.Env = folder, append(slices.DeleteFunc(os.Environ(), func(one string) bool {
		return strings.HasPrefix(one, "KUBEBUILDER_ASSETS=") // the tests that need no API server have to notice
	}), variable+"="+strconv.Itoa(number))
	cmd.WaitDelay = time.Second
	output, err := cmd.CombinedOutput()
	if limited.Err() != nil {
		err = errors.Join(err, limited.Err())
	}
	return output, err
}

func goList(ctx context.Context, path, format string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", format, path)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	return strings.TrimSpace(string(output)), err
}
