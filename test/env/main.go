// SPDX-License-Identifier: Apache-2.0

package env

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Main is the TestMain of a folder of tests that share a scenario, two folders below the root: it brings that up, runs ready and the tests,
// prints what they measured, and takes the scenario down, unless keep says that it is to be used and left as it is. It ends the process.
func Main(m *testing.M, scenario string, keep *bool, ready func(*Env) error) {
	flag.Parse()
	if os.Geteuid() != 0 || testing.Short() {
		fmt.Println("SKIPPED: these tests make real clusters, for which they must be root and not -short")
		os.Exit(0)
	}
	os.Exit(run(m, scenario, *keep, ready))
}

func run(m *testing.M, scenario string, keep bool, ready func(*Env) error) int {
	b, err := Up("../..", scenario, keep)
	if err == nil {
		err = ready(b)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	fmt.Printf("measured:\n  %s\n", strings.Join(b.measured, "\n  "))
	if !keep {
		if err := b.Down(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// Measure keeps a line for the end of the run.
func (b *Env) Measure(what, format string, values ...any) {
	b.Report(fmt.Sprintf("%-60s %s", what, fmt.Sprintf(format, values...)))
}

// Report keeps a text for the end of the run.
func (b *Env) Report(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.measured = append(b.measured, text)
}

// Do runs a command of the playground, and fails the test if that fails. One after the other: it refuses a command while another one is at work.
func (b *Env) Do(t *testing.T, args ...string) {
	t.Helper()
	b.working.Lock()
	defer b.working.Unlock()
	if said := b.Playground(args...); said.Code != 0 {
		t.Error(said)
	}
}
