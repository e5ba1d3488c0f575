// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// small is a program of ours that is quickly built.
const (
	small        = "./test/traffic"
	linkedModule = "golang.org/x/sys"
	linkedBy     = "/unix"
	function     = "Recvfrom"
)

// build returns the program, and the version of the module in it.
func build(t *testing.T, flags string) (program, version string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "program")
	if output, err := exec.Command("go", "build", "-ldflags", flags, "-o", program, small).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", small, err, output)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range info.Deps {
		if module.Path == linkedModule {
			return program, strings.TrimPrefix(module.Version, "v")
		}
	}
	t.Fatalf("%s does not link %s: choose another program for this test", small, linkedModule)
	return "", ""
}

// entry returns one vulnerability of the database, of the functions named, up to the version fixed.
func entry(t *testing.T, symbols []string, fixed string) []byte {
	t.Helper()
	events := []map[string]string{{"introduced": "0"}}
	if fixed != "" {
		events = append(events, map[string]string{"fixed": fixed})
	}
	text, err := json.Marshal(map[string]any{
		"schema_version": "1.3.1", "id": "GO-2099-0001", "summary": "planted", "modified": "2099-01-02T00:00:00Z", "published": "2099-01-01T00:00:00Z",
		"affected": []map[string]any{{
			"package": map[string]string{"name": linkedModule, "ecosystem": "Go"}, "ranges": []map[string]any{{"type": "SEMVER", "events": events}},
			"ecosystem_specific": map[string]any{"imports": []map[string]any{{"path": linkedModule + linkedBy, "symbols": symbols}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestScan plants a vulnerability of a module that a program links at its version: the scan fails. It passes if the version is not affected, if
// the function is not linked in, or if the list accepts the vulnerability.
func TestScan(t *testing.T) {
	t.Chdir("../..") // as the gate runs it
	program, version := build(t, "")
	stripped, _ := build(t, "-s -w")
	for name, test := range map[string]struct {
		symbols         []string
		fixed, accepted string
		program         string // empty: with symbols
		want            string // in the error; empty: none
	}{
		"linked in":              {symbols: []string{function}, want: "GO-2099-0001"},
		"fixed later":            {symbols: []string{function}, fixed: "999.0.0", want: "GO-2099-0001"},
		"any function":           {want: "GO-2099-0001"},
		"fixed in our version":   {symbols: []string{function}, fixed: version},
		"function not linked in": {symbols: []string{"NoSuchFunction"}},
		// Without symbols nothing is known to be absent.
		"no symbols":              {symbols: []string{"NoSuchFunction"}, program: stripped, want: "GO-2099-0001"},
		"no symbols, but fixed":   {symbols: []string{function}, program: stripped, fixed: version},
		"accepted":                {symbols: []string{function}, accepted: "GO-2099-0001 only tests link it\n"},
		"another one is accepted": {symbols: []string{function}, accepted: "GO-2099-0002 only tests link it\n", want: "GO-2099-0001"},
		"accepted without reason": {symbols: []string{function}, accepted: "GO-2099-0001\n", want: "reason"},
	} {
		for _, packed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				var out bytes.Buffer
				err := scan(t.Context(), write(t, entry(t, test.symbols, test.fixed), packed), test.accepted, []string{cmp.Or(test.program, program)}, &out)
				if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%v, want an error with %q; output:\n%s", err, test.want, &out)
				}
				if err == nil && !strings.Contains(out.String(), "database of 2099-01-02") {
					t.Errorf("the output does not state how old the database is:\n%s", &out)
				}
			})
		}
	}
}

// write writes a database of one entry, as a directory or as an archive.
func write(t *testing.T, text []byte, packed bool) string {
	t.Helper()
	const name = "GO-2099-0001.json"
	path := t.TempDir()
	if !packed {
		if err := os.WriteFile(filepath.Join(path, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	file, err := w.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(path, "vulndb.zip")
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNoDatabase: what cannot be read is an error, never a scan without findings.
func TestNoDatabase(t *testing.T) {
	t.Chdir("../..")
	program, _ := build(t, "")
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, database := range map[string]string{"none": filepath.Join(t.TempDir(), "none"), "empty": t.TempDir(), "no archive": text} {
		if err := scan(t.Context(), database, "", []string{program}, &bytes.Buffer{}); err == nil {
			t.Errorf("%s: the scan passes without a database", name)
		}
	}
	if _, err := parse(nil); err == nil {
		t.Error("an empty output passes")
	}
}

// TestArchiveLeadsNowhere: a name in an archive cannot write outside the directory.
func TestArchiveLeadsNowhere(t *testing.T) {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	if _, err := w.Create("../escaped.json"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "vulndb.zip")
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := unpack(path); err == nil {
		t.Error("unpacked")
	}
}
