// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// progress remembers which long suites have passed at a commit, so that a run that was interrupted continues with the others, and keeps
// the measurements of each suite.
type progress struct {
	folder string
	Commit string
	Passed map[string]string // name of the suite, and how long it took
}

const progressFile = "progress.json"

// readProgress reads the progress at a commit; of another commit nothing counts.
func readProgress(folder, commit string) (*progress, error) {
	fresh := &progress{folder: folder, Commit: commit, Passed: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(folder, progressFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	if err != nil {
		return nil, err
	}
	p := &progress{folder: folder}
	if err := json.Unmarshal(text, p); err != nil || p.Commit != commit || strings.HasSuffix(commit, "-dirty") || p.Passed == nil {
		return fresh, nil //nolint:nilerr // what cannot be read is run again
	}
	return p, nil
}

// remaining marks the suites that have passed.
func (p *progress) remaining(plan []stage) []stage {
	for i := range plan {
		if took, passed := p.Passed[plan[i].name]; passed {
			plan[i].skip = fmt.Sprintf("passed at this commit before, in %s; delete %s to run it again", took, filepath.Join(p.folder, progressFile))
		}
	}
	return plan
}

// record writes the measurements of a suite, and that it has passed.
func (p *progress) record(r result) error {
	if err := os.MkdirAll(p.folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.folder, r.stage.name+".log"), []byte(r.output), 0o644); err != nil {
		return err
	}
	if r.err != nil {
		return nil
	}
	p.Passed[r.stage.name] = r.took.Round(time.Second).String()
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.folder, progressFile), append(text, '\n'), 0o644)
}
