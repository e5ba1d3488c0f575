// SPDX-License-Identifier: Apache-2.0

// Command contract writes docs/contract.md: what users of the documented system rely on, row by row, with the tests that show it and their last
// results. It first takes over the results of tests that hack/check has kept in bin/results. With --check it changes nothing, and fails if a
// row has neither a test nor a row of docs/differences.md, if one of them is not there, or if the page is not as it would write it.
// Results of a commit that is not in the history of the present one are refused.
//
// The page is a function of rows.yaml, results.txt, docs/differences.md and the names of the tests in the source, so it changes only if one of
// these files does. The command must not know what the tests test. Its proof is contract_test.go.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	rowsPath        = "hack/contract/rows.yaml"
	resultsPath     = "hack/contract/results.txt"
	differencesPath = "docs/differences.md"
	pagePath        = "docs/contract.md"
	runs            = "bin/results/*.json" // what hack/check keeps
)

func main() {
	check := flag.Bool("check", false, "change nothing, fail if a row has no proof or the page would change")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	texts := map[string][]byte{}
	for _, path := range []string{rowsPath, resultsPath, differencesPath, pagePath} {
		text, err := os.ReadFile(path)
		if err != nil && (path != pagePath || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("run this in the root of the repository: %w", err)
		}
		texts[path] = text
	}
	sections, err := parseRows(texts[rowsPath])
	if err != nil {
		return fmt.Errorf("%s: %w", rowsPath, err)
	}
	results, err := parseResults(texts[resultsPath])
	if err != nil {
		return fmt.Errorf("%s: %w", resultsPath, err)
	}
	source, err := readTests(".")
	if err != nil {
		return err
	}
	differences := parseDifferences(string(texts[differencesPath]))
	if err := judge(sections, source, differences); err != nil {
		return err
	}
	if !check {
		if err := takeOver(context.Background(), results); err != nil {
			return err
		}
	}
	keep(results, sections, source)
	files := map[string][]byte{resultsPath: formatResults(results), pagePath: page(sections, differences, results, source)}
	for path, text := range files {
		switch {
		case bytes.Equal(text, texts[path]):
		case check:
			err = errors.Join(err, fmt.Errorf("%s is not up to date; run: make contract", path))
		default:
			err = errors.Join(err, os.WriteFile(path, text, 0o644))
		}
	}
	return err
}

// takeOver merges the last runs of tests into the results.
func takeOver(ctx context.Context, results map[string]result) error {
	paths, err := filepath.Glob(runs)
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		commit, ends, err := parseEvents(text)
		if err == nil && len(ends) > 0 {
			err = inHistory(ctx, ".", commit)
		}
		if err != nil {
			return fmt.Errorf("%s: %w; run its tests again, or remove the file", path, err)
		}
		merge(results, ends)
	}
	return nil
}
