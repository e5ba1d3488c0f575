// SPDX-License-Identifier: Apache-2.0

package env

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// root is where the folders of tests find the root of the repository.
const root = "../.."

// Main is the TestMain of a folder of tests that share their clusters, two folders below the root. It brings a scenario up, runs ready
// and the tests, prints what they measured, and takes the scenario down. With keep, or with given clusters (see Given), it
// uses the clusters that are up and leaves them up. flags are further flags of `playground up`. It ends the process.
func Main(m *testing.M, scenario string, keep *bool, ready func(*Env) error, flags ...string) {
	flag.Parse()
	given, err := Given(scenario)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if testing.Short() || given == nil && os.Geteuid() != 0 {
		fmt.Printf(
			"SKIPPED: these tests make real clusters, for which they must be root and not -short; or give them two clusters by %s and %s\n",
			ConsumerVariable, ProviderVariable,
		)
		os.Exit(0)
	}
	ctrl.SetLogger(logr.Discard())
	bring := func() (*Env, error) { return Up(root, scenario, *keep, flags...) }
	if given != nil {
		bring = func() (*Env, error) { return use(scenario, given) }
	}
	os.Exit(run(m, bring, *keep || given != nil, ready))
}

func run(m *testing.M, bring func() (*Env, error), keep bool, ready func(*Env) error) int {
	b, err := bring()
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

// Do runs a command of the playground, and fails the test if that fails.
func (b *Env) Do(t *testing.T, args ...string) {
	t.Helper()
	if r := b.Playground(args...); r.Code != 0 {
		t.Error(r)
	}
}
