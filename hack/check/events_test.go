// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"testing"
)

type file struct{ bytes.Buffer }

func (*file) Close() error { return nil }

// Results of tests are kept, and those of other commands are not.
func TestWithResults(t *testing.T) {
	plan := withResults([]stage{{name: "unit product", commands: []command{
		{args: []string{"make", "image"}},
		{args: []string{"go", "test", "./a"}},
		{args: []string{"go", "test", "-fuzz", "^FuzzX$", "./a"}},
		{args: []string{"go", "vet"}},
	}}}, "0123")
	for i, want := range []results{{}, {path: filepath.Join("bin", "results", "unit-product-1.json"), commit: "0123"}, {}, {}} {
		if got := plan[0].commands[i].results; got != want {
			t.Errorf("command %d: %+v, want %+v", i, got, want)
		}
	}
}

// What is printed is what "go test" prints, without and with -v; ends of tests are kept, and their text is not.
func TestEvents(t *testing.T) {
	const in = `{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"b","Test":"TestB","Output":"    b_test.go:1: why\n"}
{"Action":"pass","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a"}
{"Action":"fail","Package":"b","Test":"TestB"}
{"Action":"output","Package":"b","Output":"FAIL\tb\t0.1s\n"}
{"Action":"fail","Package":"b"}
{"ImportPath":"c","Action":"build-output","Output":"c.go:1: no\n"}
no event
`
	for verbose, want := range map[bool]string{
		false: "ok  \ta\t0.1s\n    b_test.go:1: why\nFAIL\tb\t0.1s\nc.go:1: no\nno event\n",
		true:  "=== RUN   TestA\n    b_test.go:1: why\nPASS\nok  \ta\t0.1s\nFAIL\tb\t0.1s\nc.go:1: no\nno event\n",
	} {
		var out bytes.Buffer
		kept := &file{}
		e := &events{file: kept, out: &out, verbose: verbose, tests: &tally{}, printed: map[string]*bytes.Buffer{}}
		for _, half := range []string{in[:100], in[100:]} {
			if _, err := e.Write([]byte(half)); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want {
			t.Errorf("verbose %t: printed %q, want %q", verbose, out.String(), want)
		}
		if !bytes.Contains(kept.Bytes(), []byte(`"Action":"fail","Package":"b","Test":"TestB"`)) || bytes.Contains(kept.Bytes(), []byte("why")) {
			t.Errorf("kept: %s", kept)
		}
	}
}
