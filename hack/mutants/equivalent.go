// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
)

// equivalent are the changes that make no difference, each with its reason.
//
//go:embed equivalent.txt
var equivalent string

// parseEquivalent returns the reason for each name of a change.
func parseEquivalent(text string) (map[string]string, error) {
	reasons := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, " # ")
		switch {
		case !ok || reason == "":
			return nil, fmt.Errorf("equivalent.txt: %q has no reason; write FILE: CHANGE # REASON", line)
		case reasons[name] != "":
			return nil, fmt.Errorf("equivalent.txt: %q is there twice", name)
		}
		reasons[name] = reason
	}
	return reasons, nil
}

// stale are the names of a package that are none of its changes.
func stale(folder string, points []point, same map[string]string) (names []string) {
	known := map[string]bool{}
	for _, p := range points {
		known[p.name()] = true
	}
	for name := range same {
		file, _, _ := strings.Cut(name, ":")
		if path.Dir(file) == path.Clean(folder) && !known[name] {
			names = append(names, name)
		}
	}
	return names
}
