// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// resultsFolder holds, for each command that ran tests last, the events that it printed; hack/contract reads them.
var resultsFolder = filepath.Join("bin", "results")

// results is where the events of a command are kept, and which commit it tests; without a path they are not. tests counts what the stage ran.
type results struct {
	path, commit string
	tests        *tally
}

// withResults has the results of all tests kept, each command's in a file of its own.
func withResults(plan []stage, commit string) []stage {
	for i := range plan {
		plan[i].commands = slices.Clone(plan[i].commands)
		for j := range plan[i].commands {
			if c := &plan[i].commands[j]; c.tests() {
				name := fmt.Sprintf("%s-%d.json", strings.ReplaceAll(plan[i].name, " ", "-"), j)
				c.results = results{path: filepath.Join(resultsFolder, name), commit: commit}
			}
		}
	}
	return plan
}

// tests reports whether a command runs tests, and neither fuzzes nor measures.
func (c command) tests() bool {
	return len(c.args) > 1 && c.args[0] == "go" && c.args[1] == "test" &&
		!slices.ContainsFunc(c.args, func(arg string) bool { return arg == "-fuzz" || arg == "-bench" || arg == "-measure" })
}

// keep returns a writer for the output of "go test -json", which prints on out what "go test" would print.
func keep(where results, verbose bool, out io.Writer) (*events, error) {
	if err := os.MkdirAll(filepath.Dir(where.path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(where.path)
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(map[string]string{"Commit": where.commit})
	if err == nil {
		_, err = file.Write(append(head, '\n'))
	}
	tests := where.tests
	if tests == nil {
		tests = &tally{}
	}
	return &events{file: file, out: out, verbose: verbose, tests: tests, printed: map[string]*bytes.Buffer{}}, err
}

// events keeps what "go test -json" prints, and prints what "go test" would.
type events struct {
	file    io.WriteCloser
	out     io.Writer
	verbose bool
	tests   *tally

	mu      sync.Mutex
	rest    []byte                   // the start of a line
	printed map[string]*bytes.Buffer // by package; whether it is of interest is known at the end
}

func (e *events) Write(text []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rest = append(e.rest, text...)
	for {
		line, rest, whole := bytes.Cut(e.rest, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		if err := e.line(append(slices.Clone(line), '\n')); err != nil {
			return 0, err
		}
		e.rest = rest
	}
}

func (e *events) line(line []byte) error {
	var event struct{ Action, Package, ImportPath, Test, Output string }
	if json.Unmarshal(line, &event) != nil || event.Action == "" { // of the compiler, or of go itself
		_, err := e.out.Write(line)
		return err
	}
	if event.Action != "output" { // the text of tests stays out of the file: it is in the logs
		if _, err := e.file.Write(line); err != nil {
			return err
		}
	}
	if event.Test != "" {
		e.tests.event(event.Action, event.Package+"."+event.Test, event.Output)
	}
	var now string
	kept := e.printed[event.Package]
	switch {
	case event.Output != "" && (e.verbose || event.Package == ""):
		now = event.Output
	case event.Output != "":
		if kept == nil {
			kept = &bytes.Buffer{}
			e.printed[event.Package] = kept
		}
		kept.WriteString(event.Output)
	case event.Test == "" && kept != nil && event.Action == "fail":
		now = kept.String()
	case event.Test == "" && kept != nil && (event.Action == "pass" || event.Action == "skip"):
		now = lastLine(kept.String())
	}
	if event.Test == "" && event.Output == "" && event.Action != "start" {
		delete(e.printed, event.Package)
	}
	_, err := io.WriteString(e.out, now)
	return err
}

// lastLine is all that "go test" prints of a package that passed.
func lastLine(text string) string {
	return text[strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1:]
}

// Close prints what an interrupted command has left.
func (e *events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, kept := range e.printed {
		e.out.Write(kept.Bytes()) //nolint:errcheck // the error of the command counts
	}
	e.out.Write(e.rest) //nolint:errcheck // as above
	return e.file.Close()
}
