// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// head is the commit of a working tree, with a mark if what is built or tested differs from it, and "unknown" with an error.
func head(ctx context.Context, folder string) (string, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = folder
		output, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
		}
		return string(output), nil
	}
	commit, err := git("rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return "unknown", err
	}
	status, err := git("status", "--porcelain=v1", "-z", "--untracked-files=all")
	if err != nil {
		return "unknown", err
	}
	commit = strings.TrimSpace(commit)
	if slices.ContainsFunc(strings.Split(status, "\x00"), changes) {
		commit += "-dirty"
	}
	return commit, nil
}

// changes reports whether an entry of git status changes what is built or tested: every tracked file, and of those that git does not know the sources
// of Go and what tests read. A note beside them changes nothing.
func changes(entry string) bool {
	file, untracked := strings.CutPrefix(entry, "?? ")
	switch {
	case entry == "":
		return false
	case !untracked:
		return true
	}
	return path.Ext(file) == ".go" || strings.Contains("/"+file, "/testdata/")
}
