// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHead: the commit has a mark if a tracked file differs, or if git does not know a source of Go, which go test compiles nevertheless.
func TestHead(t *testing.T) {
	folder := t.TempDir()
	if commit, err := head(t.Context(), folder); err == nil || commit != "unknown" {
		t.Errorf("outside of a repository: %s, %v", commit, err)
	}
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com", "-C", folder}, args...)...)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v %s", args, err, text)
		}
		return strings.TrimSpace(string(text))
	}
	write := func(file string) func() {
		return func() {
			path := filepath.Join(folder, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(t.Name()+file), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	git("init", "--initial-branch=main")
	write(".gitignore")()
	git("add", ".")
	git("commit", "--message=first")
	git("tag", "--annotate", "v1", "--message=v1")
	commit := git("rev-parse", "HEAD")
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"clean, at a tag", func() {}, commit},
		{"a note", write("note.txt"), commit},
		{"a source of Go", write("a/b_test.go"), commit + "-dirty"},
		{"without it", func() { git("clean", "-fdq") }, commit},
		{"a file that a test reads", write("a/testdata/golden.yaml"), commit + "-dirty"},
		{"without that", func() { git("clean", "-fdq") }, commit},
		{"a tracked file", func() { git("rm", "-q", ".gitignore") }, commit + "-dirty"},
	} {
		step.do()
		if got, err := head(t.Context(), folder); err != nil || got != step.want {
			t.Errorf("%s: %s, %v, want %s", step.name, got, err, step.want)
		}
	}
}
