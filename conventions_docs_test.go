// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The conventions for README, Makefile, CI and documents: what they name must exist.

var makeTarget = regexp.MustCompile(`(?m)^([a-zA-Z0-9_-]+):[^=\n]*$`)

// targets returns the names in the Makefile, in order.
func targets(t *testing.T) (names []string) {
	t.Helper()
	for _, match := range makeTarget.FindAllStringSubmatch(string(read(t, "Makefile")), -1) {
		names = append(names, match[1])
	}
	return names
}

func TestMakefile(t *testing.T) {
	names := targets(t)
	if len(names) == 0 || names[0] != "help" {
		t.Errorf("the first target of the Makefile is %v, want help: who types `make` wants to know what there is", names)
	}
	for line := range strings.Lines(string(read(t, "Makefile"))) {
		if makeTarget.MatchString(line) && !strings.Contains(line, " ## ") {
			t.Errorf("Makefile: %q needs a help text: target: prerequisites ## text", strings.TrimSpace(line))
		}
	}
	help := run(t, ".", "make", "help")
	phony := regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindStringSubmatch(string(read(t, "Makefile")))
	for _, name := range names {
		if !strings.Contains(help, "make "+name+" ") {
			t.Errorf("`make help` does not show %q", name)
		}
		if phony == nil || !slices.Contains(strings.Fields(phony[1]), name) {
			t.Errorf("Makefile: add %q to .PHONY, or a file of that name stops it", name)
		}
	}
}

// firstScreen is how many lines of the README a reader sees without scrolling.
const firstScreen = 30

var fence = regexp.MustCompile("(?s)```sh\n(.*?)```")

// readmeCommands returns the two commands of the first block of the README.
func readmeCommands(t *testing.T) []string {
	t.Helper()
	lines := strings.SplitAfterN(string(read(t, "README.md")), "\n", firstScreen+1)
	block := fence.FindStringSubmatch(strings.Join(lines[:min(firstScreen, len(lines))], ""))
	if block == nil {
		t.Fatalf("README.md: no ```sh block in the first %d lines", firstScreen)
	}
	commands := strings.Split(strings.TrimSpace(block[1]), "\n")
	if len(commands) != 2 {
		t.Fatalf("README.md: the first block holds %d lines, want exactly two commands:\n%s", len(commands), block[1])
	}
	return commands
}

func TestReadmeCommands(t *testing.T) {
	commands := readmeCommands(t)
	if !strings.HasSuffix(commands[0], "make quickstart") {
		t.Errorf("README.md: the first command is %q, want one that ends with: make quickstart", commands[0])
	}
	if commands[1] != "make test" {
		t.Errorf("README.md: the second command is %q, want: make test", commands[1])
	}
}

func TestCIRunsTheReadme(t *testing.T) {
	const file = ".ci/run"
	want := readmeCommands(t)[1]
	text := string(read(t, file))
	var does []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "cd ") {
			does = append(does, line)
		}
	}
	if !slices.Equal(does, []string{"set -euo pipefail", want}) {
		t.Errorf("%s runs %q; it must run the README's test command and nothing else: %q", file, does, want)
	}
	if !strings.HasPrefix(text, "#!/usr/bin/env bash\n") {
		t.Errorf("%s: the first line must be #!/usr/bin/env bash", file)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("%s must be executable; run: chmod +x %s", file, file)
	}
}

// documents returns the Markdown files.
func documents(t *testing.T) (all []string) {
	t.Helper()
	for _, file := range files(t) {
		if path.Ext(file) == ".md" {
			all = append(all, file)
		}
	}
	return all
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestLinks(t *testing.T) {
	for _, file := range documents(t) {
		text := string(read(t, file))
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, ":") {
				continue // another site
			}
			where := file
			if target != "" {
				where = path.Join(path.Dir(file), target)
			}
			if _, err := os.Stat(where); err != nil {
				t.Errorf("%s: the link %s leads nowhere", file, match[1])
				continue
			}
			if anchor != "" && path.Ext(where) == ".md" && !slices.Contains(anchors(string(read(t, where))), anchor) {
				t.Errorf("%s: %s has no heading for the link %s", file, where, match[1])
			}
		}
	}
}

var (
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors makes the names of headings the way code hosts do.
func anchors(text string) (names []string) {
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		name := noAnchor.ReplaceAllString(strings.ToLower(match[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

var (
	chartVersion = regexp.MustCompile(`(?m)^appVersion: "(.*)"$`)
	imageTag     = regexp.MustCompile(`\bliqo(?:-mover)?:([0-9A-Za-z][0-9A-Za-z._-]*)`)
)

// TestDocumentsNameTheImage: the chart asks for the image of its version, so an image with another tag, which a reader made, would stay unused.
func TestDocumentsNameTheImage(t *testing.T) {
	version := string(chartVersion.FindSubmatch(read(t, "deployments/liqo/Chart.yaml"))[1])
	for _, file := range append(documents(t), "deployments/image/Dockerfile") {
		if strings.HasPrefix(file, "docs/adr/") {
			continue
		}
		for _, match := range imageTag.FindAllStringSubmatch(string(read(t, file)), -1) {
			if match[1] != version {
				t.Errorf("%s names the image %s; the chart asks for the tag %s", file, match[0], version)
			}
		}
	}
}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	anyBlock = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	makeCall = regexp.MustCompile(`(?:^|[\s;&(])make ([a-z0-9]+)`)
	// A path of ours: it begins with an entry of the root, and no part of it is a placeholder.
	ourPath = regexp.MustCompile(`^(apis|cmd|docs|examples|hack|internal|playground|terraform|test|\.ci)/[A-Za-z0-9._/-]+$`)
	// A heading with this word is about what does not exist yet.
	planned = regexp.MustCompile(`(?i)^#+ .*(planned|to come|later)`)
)

// TestDocumentsNameWhatExists checks `make x` and `path/of/ours` in code marks.
// Decisions (docs/adr) and sections whose heading has the word "planned" describe what
// is to come, so only their make targets are checked.
func TestDocumentsNameWhatExists(t *testing.T) {
	names := targets(t)
	for _, file := range documents(t) {
		text := string(read(t, file))
		for _, snippet := range snippets(text) {
			for _, call := range makeCall.FindAllStringSubmatch(snippet, -1) {
				if !slices.Contains(names, call[1]) {
					t.Errorf("%s: there is no target for `make %s`", file, call[1])
				}
			}
		}
		if strings.HasPrefix(file, "docs/adr/") {
			continue
		}
		for _, snippet := range snippets(withoutPlanned(text)) {
			if !ourPath.MatchString(snippet) {
				continue
			}
			if _, err := os.Stat(snippet); err != nil {
				t.Errorf("%s: `%s` does not exist; correct the text, or move it under a heading with the word \"planned\"", file, snippet)
			}
		}
	}
}

var (
	playgroundCall = regexp.MustCompile(`^\s*(?:bin/)?playground ([a-z]+)`)
	commandUse     = regexp.MustCompile(`Use: +"([a-z]+)`)
)

// TestDocumentsKnowThePlaygroundCommands reads the commands from the source,
// so that the law needs no built program.
func TestDocumentsKnowThePlaygroundCommands(t *testing.T) {
	commands := []string{"completion", "help"} // cobra's own
	for _, file := range sources(t) {
		if path.Dir(file.path) == "playground/internal/cli" && !file.test {
			for _, match := range commandUse.FindAllStringSubmatch(string(read(t, file.path)), -1) {
				commands = append(commands, match[1])
			}
		}
	}
	for _, file := range documents(t) {
		for _, snippet := range snippets(string(read(t, file))) {
			if call := playgroundCall.FindStringSubmatch(snippet); call != nil && !slices.Contains(commands, call[1]) {
				t.Errorf("%s: `%s`: the playground has no command %q (there are %v)", file, snippet, call[1], commands)
			}
		}
	}
}

// snippets returns what stands in code marks and code blocks.
func snippets(text string) (all []string) {
	for _, block := range anyBlock.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Split(block[1], "\n")...)
	}
	for _, span := range codeSpan.FindAllStringSubmatch(anyBlock.ReplaceAllString(text, ""), -1) {
		all = append(all, span[1])
	}
	return all
}

// withoutPlanned drops sections, with what is below them, that are about the future.
func withoutPlanned(text string) string {
	var kept strings.Builder
	depth := 0 // of the heading whose section is dropped
	for line := range strings.Lines(text) {
		if level := len(line) - len(strings.TrimLeft(line, "#")); level > 0 && strings.HasPrefix(line[level:], " ") {
			if depth == 0 || level <= depth {
				depth = 0
			}
			if depth == 0 && planned.MatchString(line) {
				depth = level
			}
		}
		if depth == 0 {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// TestADRs holds the decisions to their form, so that each can be read in a minute.
func TestADRs(t *testing.T) {
	name := regexp.MustCompile(`^docs/adr/\d{4}-[a-z0-9-]+\.md$`)
	for _, file := range documents(t) {
		if path.Dir(file) != "docs/adr" || path.Base(file) == "README.md" {
			continue
		}
		if !name.MatchString(file) {
			t.Errorf("%s: want a name like docs/adr/0042-what-was-decided.md", file)
		}
		text := string(read(t, file))
		last := -1
		for _, part := range []string{"\nStatus: ", "\n## Example", "\n## Context", "\n## Decision", "\n## Consequences", "\n## What would change our mind"} {
			at := strings.Index(text, part)
			if at <= last {
				t.Errorf("%s: %q is missing or in the wrong place", file, strings.TrimSpace(part))
			}
			last = max(at, last)
		}
		if lines := strings.Count(text, "\n"); lines > 80 {
			t.Errorf("%s: %d lines; a decision fits on one page (80)", file, lines)
		}
	}
}

// parts of the documented system, as docs/differences.md numbers them.
var parts = map[string]string{
	"1": "Names", "2": "Kinds", "3": "liqoctl", "4": "Labels", "5": "Webhooks", "6.1": "Values", "6.2": "Rights", "7": "Identity", "8": "Peering", "9": "Nodes",
	"10": "Reflection", "11": "Network", "12": "Storage", "13": "Telemetry Dashboards Metrics", "14": "Discovery", "15": "Uninstallation", "16": "Examples",
	"17": "Flags", "18": "Ports", "19": "Times", "20": "Environment",
}

// TestDifferences: each row of docs/differences.md names a part of the documented system, what is documented, what is here, and the place of the reason,
// which TestLinks looks up. No row is there twice.
func TestDifferences(t *testing.T) {
	seen := map[string]bool{}
	for i, line := range strings.Split(string(read(t, "docs/differences.md")), "\n") {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| Part ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if len(cells) != 4 {
			t.Errorf("line %d has %d cells, want 4", i+1, len(cells))
			continue
		}
		number, title, _ := strings.Cut(strings.TrimSpace(cells[0]), " ")
		if names := strings.Fields(parts[number]); !slices.Contains(names, title) {
			t.Errorf("line %d: no part of the documented system is %q", i+1, cells[0])
		}
		if strings.TrimSpace(cells[1]) == "" || strings.TrimSpace(cells[2]) == "" || !link.MatchString(cells[3]) {
			t.Errorf("line %d lacks what is documented, what is here, or a link to the reason", i+1)
		}
		if documented := cells[0] + cells[1]; seen[documented] {
			t.Errorf("line %d repeats: %s", i+1, documented)
		} else {
			seen[documented] = true
		}
	}
	if len(seen) == 0 {
		t.Error("docs/differences.md has no rows")
	}
}
