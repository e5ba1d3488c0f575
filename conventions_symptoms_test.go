// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const troubleshooting = "docs/troubleshooting.md"

// TestSymptoms: each text in code marks in the first column of the page is one that the program, or a policy of its chart, writes. "…" stands for names and
// numbers. A single word is a whole text of the program, such as a reason.
func TestSymptoms(t *testing.T) {
	written := writtenTexts(t)
	count := 0
	for i, line := range strings.Split(string(read(t, troubleshooting)), "\n") {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, span := range codeSpan.FindAllStringSubmatch(first, -1) {
			count++
			if !slices.ContainsFunc(written, func(text string) bool { return has(text, span[1]) }) {
				t.Errorf("%s:%d: no text of the program is %q; correct the page", troubleshooting, i+1, span[1])
			}
		}
	}
	if count < 100 {
		t.Errorf("%s quotes %d texts only: is it still made of tables with texts in code marks?", troubleshooting, count)
	}
}

func TestSymptomsAreFound(t *testing.T) {
	for _, test := range []struct {
		text, quoted string
		want         bool
	}{
		{"the network of %q is %s; try again", "the network of … is …; try", true},
		{"the network of %q is %s; try again", "is … the network", false},
		{"NodeReady", "Ready", false},
		{"Ready", "Ready", true},
	} {
		if got := has(test.text, test.quoted); got != test.want {
			t.Errorf("has(%q, %q) = %v", test.text, test.quoted, got)
		}
	}
}

// has reports whether the program's text has the quoted parts, in order.
func has(text, quoted string) bool {
	if !strings.ContainsAny(quoted, " …") {
		return text == quoted
	}
	for part := range strings.SplitSeq(quoted, "…") {
		_, rest, found := strings.Cut(text, strings.TrimSpace(part))
		if !found {
			return false
		}
		text = rest
	}
	return true
}

// unremarkable are the events that report that something went well, or that belong to no trouble.
var unremarkable = strings.Fields("PeerAdmitted PeerAccepted PeerKeyReplaced IdentityRenewed VkCreated VkDeleted SuccessfulReflection")

// TestEventsHaveSymptoms: the page explains each event that reports trouble.
func TestEventsHaveSymptoms(t *testing.T) {
	page := string(read(t, troubleshooting))
	reason := regexp.MustCompile(`(?m)^\t(\w+) += "\w+"$`)
	all := reason.FindAllStringSubmatch(string(read(t, "apis/reasons/reasons.go")), -1)
	for _, match := range all {
		if name := match[1]; !slices.Contains(unremarkable, name) && !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s does not explain the event %s", troubleshooting, name)
		}
	}
	if len(all) < len(unremarkable) {
		t.Errorf("apis/reasons/reasons.go has the reasons %v only", all)
	}
}

var space = regexp.MustCompile(`\s+`)

// writtenTexts returns the texts of the program and of the policies in its chart; what is put together of texts is one.
func writtenTexts(t *testing.T) (all []string) {
	t.Helper()
	for _, file := range sources(t) {
		if top, _, _ := strings.Cut(file.path, "/"); file.test || !slices.Contains([]string{"apis", "cmd", "internal"}, top) {
			continue
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			if expression, ok := node.(ast.Expr); ok {
				if text := joined(expression); text != "" {
					all = append(all, text)
				}
			}
			return true
		})
	}
	for _, file := range files(t) {
		if path.Dir(file) == "deployments/liqo/templates" {
			all = append(all, space.ReplaceAllString(string(read(t, file)), " "))
		}
	}
	return all
}

// joined is the text of a literal, or of literals and other values that are added.
func joined(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return joined(e.X) + joined(e.Y)
		}
	}
	return ""
}
