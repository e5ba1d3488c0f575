// SPDX-License-Identifier: Apache-2.0

// Command recording draws the terminal picture of the README, an SVG, from a transcript of the Quick Start. The transcript,
// docs/quick-start.txt, is what hack/quickstart printed, cut to the commands that show what the program does:
//
//	hack/quickstart | go run ./hack/recording --record     # writes transcript and picture
//	go run ./hack/recording                                # writes the picture again, from the transcript
//
// It must not know what the commands mean. Its proof is main_test.go, which also holds the committed picture against the transcript.
package main

import (
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	transcriptFile = "docs/quick-start.txt"
	pictureFile    = "docs/quick-start.svg"
)

// serviceCommand prints more than a picture can hold: only these lines of its output are shown.
const serviceCommand = "kubectl describe service liqo-demo"

var serviceLines = regexp.MustCompile(`^(Name|Type|IP|Endpoints):`)

// shown are the starts of the commands in the picture, in order.
var shown = []string{
	"liqoctl peer out-of-band",
	"kubectl get foreignclusters",
	"kubectl get nodes",
	"liqoctl offload namespace",
	"kubectl apply -f ./manifests/hello-world",
	"kubectl get pod -n liqo-demo -o wide",
	serviceCommand,
}

func main() {
	record := flag.Bool("record", false, "read the output of hack/quickstart from standard input and write the transcript first")
	flag.Parse()
	if err := run(*record, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func run(record bool, in io.Reader) error {
	if record {
		output, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		text, err := transcript(string(output))
		if err != nil {
			return err
		}
		if err := os.WriteFile(transcriptFile, []byte(text), 0o644); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(transcriptFile)
	if err != nil {
		return err
	}
	return os.WriteFile(pictureFile, []byte(picture(string(text))), 0o644)
}

var (
	// columns are what makes lines of kubectl too wide for a picture, by the header's words.
	columns = []string{"NOMINATED NODE", "READINESS GATES", "INTERNAL-IP", "EXTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"}
	escape  = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
)

// transcript keeps the commands that are shown, each with its output.
func transcript(output string) (string, error) {
	blocks := strings.Split(escape.ReplaceAllString(output, ""), "\n$ ")
	var kept []string
	for _, start := range shown {
		i := slices.IndexFunc(blocks, func(block string) bool { return strings.HasPrefix(block, start) })
		if i < 0 {
			return "", fmt.Errorf("the output holds no command that starts with %q", start)
		}
		block, _, _ := strings.Cut(blocks[i], "\n\n")
		lines := strings.Split(strings.TrimRight(block, "\n"), "\n")
		if start == serviceCommand {
			lines = slices.DeleteFunc(lines, func(line string) bool { return line != lines[0] && !serviceLines.MatchString(line) })
		}
		kept = append(kept, "$ "+strings.Join(narrow(lines), "\n"))
	}
	if len(kept) == 0 {
		return "", errors.New("nothing is shown")
	}
	return strings.Join(kept, "\n\n") + "\n", nil
}

// narrow cuts the columns off that a picture does not need, and white space at the ends of lines.
func narrow(lines []string) []string {
	cut := 0
	if len(lines) > 1 {
		for _, column := range columns {
			if i := strings.Index(lines[1], column); i > 0 && (cut == 0 || i < cut) {
				cut = i
			}
		}
	}
	for i := range lines {
		if i > 0 && cut > 0 && len(lines[i]) > cut {
			lines[i] = lines[i][:cut]
		}
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	return lines
}

// Sizes of the picture, in pixels.
const (
	wide, high = 8.4, 19.0 // of a character and a line
	margin     = 16.0
	bar        = 30.0 // the bar of the window
	most       = 112  // characters of a line
)

// picture draws a terminal window. It is plain SVG without scripts, so that it shows wherever Markdown does.
func picture(text string) string {
	lines := wrap(strings.Split(strings.TrimRight(text, "\n"), "\n"))
	width, height := 2*margin+wide*most, bar+2*margin+high*float64(len(lines))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n", width, height, width, height)
	b.WriteString("<!-- SPDX-License-Identifier: Apache-2.0; drawn by: go run ./hack/recording -->\n")
	b.WriteString("<title>One cluster peers with another, offloads a namespace, and a Service answers with pods of both</title>\n")
	b.WriteString(`<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d6deeb;white-space:pre}.p{fill:#7fdbca}.c{fill:#ffffff;font-weight:600}.v{fill:#ffcb6b}</style>` + "\n")
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#011627"/>`+"\n")
	for i, color := range []string{"#ff5f56", "#ffbd2e", "#27c93f"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="16" r="6" fill="%s"/>`+"\n", 20+20*i, color)
	}
	for i, line := range lines {
		y := bar + margin + high*float64(i)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" xml:space="preserve">%s</text>`+"\n", margin, y, colored(line))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// wrap continues long commands on the next line, as a shell does, and cuts long output.
func wrap(lines []string) (all []string) {
	for _, line := range lines {
		if !strings.HasPrefix(line, "$ ") {
			if runes := []rune(line); len(runes) > most {
				line = string(runes[:most-1]) + "…"
			}
			all = append(all, line)
			continue
		}
		for len(line) > most {
			at := strings.LastIndex(line[:most-2], " ")
			if at < 4 {
				break
			}
			all = append(all, line[:at]+` \`)
			line = "    " + line[at+1:]
		}
		all = append(all, line)
	}
	return all
}

// virtual are words that a reader should see at once.
var virtual = regexp.MustCompile(`liqo-milan|Established|nginx-remote`)

func colored(line string) string {
	if command, is := strings.CutPrefix(line, "$ "); is {
		return `<tspan class="p">$ </tspan><tspan class="c">` + html.EscapeString(command) + `</tspan>`
	}
	return virtual.ReplaceAllString(html.EscapeString(line), `<tspan class="v">$0</tspan>`)
}
