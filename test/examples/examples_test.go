// SPDX-License-Identifier: Apache-2.0

// Package examples follows the guides of examples/ from the first command to the last one, and checks that they print what the guides promise.
// The guides bring their clusters up and take them down.
//
// It knows what a reader knows: the guide, the output, kubectl. The guide of the database has a package of its own, test/stateful, because its
// test does more than the guide. Run it with: make test-long SUITE=examples
package examples

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/guide"
)

const root = "../.."

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() || os.Geteuid() != 0 {
		fmt.Println("SKIPPED: these tests make real clusters, for which they must be root and not -short")
		return
	}
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// follow runs all commands of the guide of an example, and compares what they print with wants.
func follow(t *testing.T, example, scenario string, wants []guide.Want) []guide.Output {
	t.Helper()
	text, err := guide.Read(root, example)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := guide.Start(text, example); err != nil {
		t.Error(err)
	}
	down := func() { execution.Run("", filepath.Join(root, "bin", "playground"), "down") }
	down()
	t.Cleanup(down)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	shell := guide.Shell{Folder: root, Ended: func(one guide.Output) {
		t.Logf("$ %s   (%.1f s)\n%s", one.Command.Line, one.Took.Seconds(), one.Text)
	}}
	outputs, err := shell.Run(ctx, guide.Commands(text))
	if err != nil {
		t.Error(err)
		// The guide has not taken its clusters down.
		clusters, err := env.Up(root, scenario, true)
		if err != nil {
			t.Fatal(err)
		}
		clusters.Step(t)
		t.FailNow()
	}
	if err := guide.Check(outputs, wants); err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { screen(t, example, outputs) })
	return outputs
}

// screen keeps what the screen showed, from which hack/recording draws the picture of the guide, if the test has passed.
func screen(t *testing.T, example string, outputs []guide.Output) {
	t.Helper()
	folder := filepath.Join(root, "bin", "examples")
	if t.Failed() {
		return
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, example+".txt"), []byte(guide.Transcript(outputs)), 0o644); err != nil {
		t.Fatal(err)
	}
}
