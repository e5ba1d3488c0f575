// SPDX-License-Identifier: Apache-2.0

// Package preflight is how an action reports the checks that failed before it changed anything. It must not know the checks. Its
// proof are the tests of package peer.
package preflight

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

type Level string

const (
	LevelFailure Level = "failure"
	LevelWarning Level = "warning"
)

// Finding is the objection of a check to a peering.
type Finding struct {
	Check    string `json:"check"`
	Level    Level  `json:"level"`
	Evidence string `json:"evidence"`
	Remedy   string `json:"remedy"`
}

func (f Finding) String() string { return f.Check + ": " + f.Evidence + "; " + f.Remedy }

// Error holds the checks that failed. Nothing was changed.
type Error struct{ Findings []Finding }

// Error names each failed check, with evidence and remedy.
func (e *Error) Error() string {
	lines := []string{}
	for _, finding := range e.Findings {
		lines = append(lines, finding.String())
	}
	if len(lines) == 1 {
		return lines[0] + " (nothing was changed)"
	}
	return fmt.Sprintf("%d checks failed and nothing was changed:\n- %s", len(lines), strings.Join(lines, "\n- "))
}

func Found(evidence, remedy string) *Finding { return &Finding{Evidence: evidence, Remedy: remedy} }

// JudgeName checks the name that a cluster is to have here.
func JudgeName(name string) *Finding {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return Found(fmt.Sprintf("%q cannot be the name of a cluster: %s", name, strings.Join(problems, "; ")),
			"choose a name of lower-case letters, digits and hyphens; it may differ from the cluster's own name")
	}
	return nil
}
