// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// The words of the repository: plain English of the field, without the private vocabulary that early versions of the
// code used. The list is hack/words.txt.

// TestWords looks for listed words in identifiers, comments, strings and documents, and for listed phrases in comments,
// strings and documents. CamelCase identifiers are split into their parts.
func TestWords(t *testing.T) {
	const list = "hack/words.txt"
	banned := map[string]string{} // word or phrase, and what to write instead
	phrases := map[string]*regexp.Regexp{}
	var exempt []string
	for i, line := range strings.Split(string(read(t, list)), "\n") {
		key, value, ok := strings.Cut(line, ": ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !ok:
			t.Errorf("%s:%d: want WORD: WHAT TO WRITE INSTEAD", list, i+1)
		case key == "exempt":
			exempt = append(exempt, value)
		default:
			banned[key] = value
			if strings.ContainsAny(key, " ,") {
				phrases[key] = regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(key) + `(\W|$)`)
			}
		}
	}
	slices.SortFunc(exempt, func(a, b string) int { return len(b) - len(a) })
	blanks := make([]string, 0, 2*len(exempt))
	for _, name := range exempt {
		blanks = append(blanks, name, strings.Repeat("-", len(name)))
	}
	without := strings.NewReplacer(blanks...)
	for _, file := range files(t) {
		kind := path.Ext(file)
		switch {
		case file == list || file == "LICENSE" || strings.Contains(file, "zz_generated") || strings.HasSuffix(file, ".pb.go") || path.Base(file) == "go.sum":
			continue
		case !slices.Contains([]string{".go", ".md", ".yaml", ".tpl", ".txt", ".txtar", ".golden", ".sh", ".html", "", ".mod"}, kind):
			continue
		}
		report := func(line int, word string) {
			t.Errorf("%s:%d: %q: write %s", file, line, word, banned[word])
		}
		text := func(line int, text string) {
			for i, one := range strings.Split(without.Replace(text), "\n") {
				for _, word := range words(one) {
					if _, found := banned[word]; found {
						report(line+i, word)
					}
				}
				lower := strings.ToLower(one)
				for phrase, pattern := range phrases {
					if strings.Contains(lower, phrase) && pattern.MatchString(lower) {
						report(line+i, phrase)
					}
				}
			}
		}
		if kind != ".go" {
			text(1, string(read(t, file)))
			continue
		}
		goWords(read(t, file), text)
	}
}

// goWords calls text with each identifier, comment and string of a Go file, and its line.
func goWords(source []byte, text func(line int, text string)) {
	positions := token.NewFileSet()
	file := positions.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	for {
		at, kind, literal := s.Scan()
		switch kind {
		case token.EOF:
			return
		case token.STRING:
			if value, err := strconv.Unquote(literal); err == nil && literal[0] == '"' {
				literal = value
			}
			text(file.Line(at), literal)
		case token.IDENT, token.COMMENT:
			text(file.Line(at), literal)
		}
	}
}

// words splits text into lower-case words; camelCase counts as several.
func words(text string) (all []string) {
	var word []rune
	flush := func() {
		if len(word) > 0 {
			all = append(all, strings.ToLower(string(word)))
		}
		word = word[:0]
	}
	for _, r := range text {
		if !unicode.IsLetter(r) {
			flush()
			continue
		}
		if unicode.IsUpper(r) && len(word) > 0 && !unicode.IsUpper(word[len(word)-1]) {
			flush()
		}
		word = append(word, r)
	}
	flush()
	return all
}

func TestWordsAreSplit(t *testing.T) {
	for text, want := range map[string][]string{
		"maxAge(pod_of)":       {"max", "age", "pod", "of"},
		"the API's HTTPServer": {"the", "api", "s", "httpserver"},
	} {
		if got := words(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
