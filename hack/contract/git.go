// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// inHistory returns an error unless a commit, as hack/check writes it, is one that the present one comes from: the results of another are not of this source.
func inHistory(ctx context.Context, folder, commit string) error {
	hash := strings.TrimSuffix(commit, "-dirty")
	if strings.HasPrefix(hash, "-") {
		return fmt.Errorf("%q is no commit", commit)
	}
	cmd := exec.CommandContext(ctx, "git", "merge-base", "--is-ancestor", hash, "HEAD")
	cmd.Dir = folder
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("commit %s is not in the history of this one (git merge-base --is-ancestor: %w %s)", commit, err, strings.TrimSpace(string(text)))
	}
	return nil
}
