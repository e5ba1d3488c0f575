// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const text = "# Count\n\n```sh\nN=1                # the number\n\nls missing   # fails: no such file\n```\n\nIt prints:\n\n```\n1\n```\n\n" +
	"`make example NAME=count` stops here.\nLook:\n\n```sh\necho $N; printf '#' >&2\n```\n\n## Go on\n\n```sh\nN=2 && false\necho $N\n```\n"

func TestCommands(t *testing.T) {
	if got := fmt.Sprint(Commands(text)); got != "[{N=1 false} {ls missing true} {echo $N; printf '#' >&2 false} {N=2 && false false} {echo $N false}]" {
		t.Error(got)
	}
}

func TestStart(t *testing.T) {
	before, rest, err := Start(text, "count")
	if err != nil || len(Commands(before)) != 2 || len(Commands(rest)) != 1 || !strings.HasPrefix(rest, "Look:") {
		t.Errorf("before %q, rest %q, error %v", before, rest, err)
	}
	if _, _, err := Start(text, "other"); err == nil {
		t.Error("a guide without the line is started")
	}
}

// Every guide makes its clusters before the place where `make example` stops, and takes them down at its end. The Quick Start has a command of its own.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/README.md")
	if err != nil || len(files) < 2 {
		t.Fatalf("guides %v, error %v", files, err)
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if name == "quick-start" {
			continue
		}
		text, err := Read("../..", name)
		if err != nil {
			t.Fatal(err)
		}
		before, _, err := Start(text, name)
		if err != nil {
			t.Error(err)
			continue
		}
		up := slices.ContainsFunc(Commands(before), func(one Command) bool { return strings.HasPrefix(one.Line, "bin/playground up ") })
		all := Commands(text)
		if last := all[len(all)-1].Line; !up || last != "cd ../.. && make down" {
			t.Errorf("the guide of %s makes clusters: %t, and its last command is %q", name, up, last)
		}
	}
}

// Variables stay from one command to the next, both streams are kept, and a command that fails ends it unless that is announced.
func TestRun(t *testing.T) {
	var screen strings.Builder
	ended := 0
	shell := Shell{Folder: t.TempDir(), Env: []string{"LC_ALL=C"}, Screen: &screen, Ended: func(Output) { ended++ }}
	outputs, err := shell.Run(t.Context(), Commands(text))
	if err == nil || len(outputs) != 4 || ended != 4 || !strings.Contains(err.Error(), "N=2 && false") {
		t.Errorf("%d of %d outputs, error %v", ended, len(outputs), err)
	}
	if err := Check(outputs, []Want{
		{Command: "ls missing", Match: []string{"No such file"}},
		{Command: "echo $N; printf '#' >&2", Match: []string{`^1\n#\n$`}, Not: []string{"2"}},
	}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(screen.String(), "\n$ echo $N; printf '#' >&2\n1\n#\n") {
		t.Errorf("the screen shows\n%s", &screen)
	}
	for _, want := range []Want{
		{Command: "echo $N; printf '#' >&2", Match: []string{"2"}},
		{Command: "echo $N; printf '#' >&2", Not: []string{"1"}},
		{Command: "echo $N"},
	} {
		if Check(outputs, []Want{want}) == nil {
			t.Errorf("%v is met", want)
		}
	}
	if _, err := shell.Run(t.Context(), []Command{{"true", true}}); err == nil {
		t.Error("a command that should fail succeeds, and nothing is reported")
	}
}
