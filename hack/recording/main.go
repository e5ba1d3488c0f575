// SPDX-License-Identifier: Apache-2.0

// Command recording draws terminal pictures, SVGs, from transcripts, and takes the picture of a page in a browser. A transcript is what commands
// printed in a real run, cut to those that show what the program does:
//
//	hack/quickstart | go run ./hack/recording --record     # the Quick Start: writes docs/quick-start.txt and its picture for the README
//	go run ./hack/recording --example NAME                 # an example: from bin/examples/NAME.txt, which make test-long SUITE=examples writes
//	go run ./hack/recording --page                         # the shop that make quickstart leaves running: the picture of its guide, by Chromium
//	go run ./hack/recording                                # draws all pictures again, from their transcripts
//
// It must not know what the commands mean. Its proof is main_test.go, which also holds the committed pictures against their transcripts.
package main

import (
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// subject is what a picture shows.
type subject struct {
	file  string // of the transcript and the picture, without .txt and .svg
	title string
	shown []shown
	color string // regular expression of words that a reader should see at once
}

// shown is a command in the picture, by its start, with a line break if that is all of it. If lines is given, only those lines of its output are
// shown that it matches.
type shown struct{ start, lines string }

var quickStart = subject{
	file:  "docs/quick-start",
	title: "One cluster peers with another, offloads a namespace, and a Service answers with pods of both",
	color: `liqo-milan|Established|nginx-remote`,
	shown: []shown{
		{start: "liqoctl peer out-of-band"},
		{start: "kubectl get foreignclusters"},
		{start: "kubectl get nodes"},
		{start: "liqoctl offload namespace"},
		{start: "kubectl apply -f ./manifests/hello-world"},
		{start: "kubectl get pod -n liqo-demo -o wide"},
		{"kubectl describe service liqo-demo", `^(Name|Type|IP|Endpoints):`},
	},
}

// examples are the pictures of guides, by the name of the example.
var examples = map[string]subject{
	"offloading-with-policies": {
		title: "A namespace is offloaded to the clusters of a region; a pod that wants another one waits until the policy permits it",
		color: `liqo-naples|liqo-florence|FailedScheduling`,
		shown: []shown{
			{start: "kubectl get foreignclusters"},
			{start: "liqoctl offload namespace liqo-demo"},
			{start: "kubectl get pod -n liqo-demo -o wide"},
			{"kubectl describe pod -n liqo-demo -l app=app-center", `FailedScheduling`},
			{start: "liqoctl offload namespace liqo-demo --namespace-mapping-strategy EnforceSameName --selector"},
			{start: "kubectl apply -f ./manifests/deploy.yaml"},
			{start: "kubectl get pod -n liqo-demo -o wide"},
		},
	},
	"service-offloading": {
		title: "A Service of one cluster answers by its name in another, in which none of its pods run",
		color: `flights-service|BA 175`,
		shown: []shown{
			{start: "kubectl get foreignclusters"},
			{start: "liqoctl offload namespace liqo-demo"},
			{start: "kubectl get services --namespace liqo-demo --kubeconfig"},
			{start: "kubectl get pods --namespace liqo-demo --kubeconfig"},
			{`echo "$CURL" | kubectl run consumer --rm -i --image playground.local/tools:1 --restart=Never --kubeconfig`, `flight`},
			{start: "kubectl get pods -n liqo-demo -o wide"},
		},
	},
	"replicated-deployments": {
		title: "One replica in each of two clusters; one of them is cut off, keeps its replica, and returns",
		color: `liqo-europe-rome-edge|liqo-europe-milan-edge`,
		shown: []shown{
			{start: "kubectl get foreignclusters"},
			{start: "liqoctl offload namespace liqo-demo"},
			{start: "kubectl get pod -n liqo-demo -o wide"},
			{start: "playground fault partition"},
			{start: "kubectl wait --for=condition=Ready=False"},
			{start: "kubectl get pod -n liqo-demo -o wide"},
			{start: "playground fault heal"},
			{start: "kubectl wait --for=condition=Ready node"},
			{start: "kubectl get pod -n liqo-demo -o wide"},
		},
	},
	"global-ingress": {
		title: "Requests to one name go on while a cluster loses its ingress controllers, its gateway, and all its nodes",
		color: `liqo-gslb-us|[0-9]+ failed`,
		shown: []shown{
			{start: "kubectl get pods -n podinfo -o wide"},
			{start: "answers\n"},
			{start: "kubectl delete daemonset ingress"},
			{"report load", `^ +(requests|latency|error|pod) `},
			{start: "answers\n"},
			{start: "playground node stop gslb-us gslb-us-worker"},
			{start: "playground node stop gslb-us gslb-us-control-plane"},
			{"report load", `^ +(requests|latency|error|pod) `},
			{start: "answers\n"},
		},
	},
}

// subjects are all pictures.
func subjects() (all []subject) {
	for name := range examples {
		all = append(all, example(name))
	}
	return append(all, quickStart)
}

func example(name string) subject {
	s := examples[name]
	s.file = path.Join("examples", name, "terminal")
	return s
}

func main() {
	record := flag.Bool("record", false, "read the output of hack/quickstart from standard input and write the transcript first")
	name := flag.String("example", "", "read what make test-long SUITE=examples kept of an example, and write its transcript first")
	browser := flag.Bool("page", false, "take the picture of the shop that make quickstart leaves running")
	flag.Parse()
	var err error
	if *browser {
		err = page()
	} else {
		err = run(*record, *name, os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func run(record bool, name string, in io.Reader) error {
	switch {
	case record:
		output, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		if err := quickStart.record(string(output)); err != nil {
			return err
		}
	case name != "":
		if _, known := examples[name]; !known {
			return fmt.Errorf("no picture of example %q; add it to hack/recording/main.go", name)
		}
		output, err := os.ReadFile(path.Join("bin", "examples", name+".txt"))
		if err != nil {
			return fmt.Errorf("%w; run: make test-long SUITE=examples", err)
		}
		if err := example(name).record(string(output)); err != nil {
			return err
		}
	}
	for _, s := range subjects() {
		text, err := os.ReadFile(s.file + ".txt")
		if errors.Is(err, fs.ErrNotExist) {
			continue // not recorded yet
		}
		if err == nil {
			err = os.WriteFile(s.file+".svg", []byte(s.picture(string(text))), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// record writes the transcript of an output.
func (s subject) record(output string) error {
	text, err := s.transcript(output)
	if err != nil {
		return err
	}
	return os.WriteFile(s.file+".txt", []byte(text), 0o644)
}

var (
	// columns are what makes lines of kubectl too wide for a picture, by the header's words.
	columns = []string{"NOMINATED NODE", "READINESS GATES", "INTERNAL-IP", "EXTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"}
	escape  = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
)

// transcript keeps the commands that are shown, in their order, each with its output.
func (s subject) transcript(output string) (string, error) {
	blocks := strings.Split("\n"+escape.ReplaceAllString(output, ""), "\n$ ")
	var kept []string
	for _, one := range s.shown {
		i := slices.IndexFunc(blocks, func(block string) bool { return strings.HasPrefix(block, one.start) })
		if i < 0 {
			return "", fmt.Errorf("the output holds no command that starts with %q here", one.start)
		}
		block, _, _ := strings.Cut(blocks[i], "\n\n")
		blocks = blocks[i+1:]
		lines := strings.Split(strings.TrimRight(block, "\n"), "\n")
		if wanted := regexp.MustCompile(one.lines); one.lines != "" {
			command := lines[0]
			lines = append([]string{command}, slices.DeleteFunc(lines[1:], func(line string) bool { return !wanted.MatchString(line) })...)
		}
		kept = append(kept, "$ "+strings.Join(narrow(lines), "\n"))
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
func (s subject) picture(text string) string {
	lines := wrap(strings.Split(strings.TrimRight(text, "\n"), "\n"))
	width, height := 2*margin+wide*most, bar+2*margin+high*float64(len(lines))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n", width, height, width, height)
	b.WriteString("<!-- SPDX-License-Identifier: Apache-2.0; drawn by: go run ./hack/recording -->\n")
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(s.title))
	b.WriteString(`<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",` +
		`monospace;fill:#d6deeb;white-space:pre}.p{fill:#7fdbca}.c{fill:#ffffff;font-weight:600}.v{fill:#ffcb6b}</style>` + "\n")
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#011627"/>`+"\n")
	for i, color := range []string{"#ff5f56", "#ffbd2e", "#27c93f"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="16" r="6" fill="%s"/>`+"\n", 20+20*i, color)
	}
	color := regexp.MustCompile(s.color)
	for i, line := range lines {
		y := bar + margin + high*float64(i)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" xml:space="preserve">%s</text>`+"\n", margin, y, colored(line, color))
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

// colored marks words of an output that a reader should see at once.
func colored(line string, words *regexp.Regexp) string {
	if command, is := strings.CutPrefix(line, "$ "); is {
		return `<tspan class="p">$ </tspan><tspan class="c">` + html.EscapeString(command) + `</tspan>`
	}
	return words.ReplaceAllString(html.EscapeString(line), `<tspan class="v">$0</tspan>`)
}
