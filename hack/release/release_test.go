// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

var long = flag.Bool("long", false, "also build a release twice, once without Go's build cache (ten minutes)")

var someCommit = commit{id: strings.Repeat("a1", 20), time: time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)}

// TestReproducible: two builds of the same commit, in different folders and one without anything from Go's build cache, give the same bytes.
func TestReproducible(t *testing.T) {
	if !*long {
		t.Skip("only with -long; `make test-long SUITE=release` runs it")
	}
	t.Chdir("../..")
	id, err := output(t.Context(), ".", "git", "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	from := commit{id: id, time: someCommit.time}
	folders := [2]string{t.TempDir(), t.TempDir()}
	for i, folder := range folders {
		if i == 1 {
			t.Setenv("GOCACHE", t.TempDir())
		}
		if err := build(t.Context(), from, "registry.example.com/liqo", folder); err != nil {
			t.Fatal(err)
		}
	}
	var sums [2][]checksum
	for i, folder := range folders {
		if sums[i], err = checksums(folder); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(sums[0], sums[1]) {
		t.Errorf("the files differ:\n%v\n%v", sums[0], sums[1])
	}
	values := unpack(t, folders[0])["liqo/values.yaml"]
	if !strings.Contains(values, "\nimageName: registry.example.com/liqo\n") || !strings.Contains(values, "\ndigest: sha256:") {
		t.Error("the chart of the release does not pin the image")
	}
}

// unpack returns the files of the one chart in the folder.
func unpack(t *testing.T, folder string) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*.tgz"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	file, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	uncompressed, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(uncompressed); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

// TestChart: the archive has what Helm needs, nothing of the tests, and the same bytes each time.
func TestChart(t *testing.T) {
	folders := [2]string{t.TempDir(), t.TempDir()}
	var sums [2][]checksum
	for i, folder := range folders {
		if err := packChart("../../deployments/liqo", filepath.Join(folder, "liqo.tgz"), someCommit.time); err != nil {
			t.Fatal(err)
		}
		var err error
		if sums[i], err = checksums(folder); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(sums[0], sums[1]) {
		t.Error("two archives of one chart differ")
	}
	files := unpack(t, folders[0])
	for _, want := range []string{"liqo/Chart.yaml", "liqo/values.yaml", "liqo/values.schema.json", "liqo/templates/_helpers.tpl"} {
		if files[want] == "" {
			t.Errorf("%s is missing", want)
		}
	}
	for name := range files {
		if strings.HasSuffix(name, ".go") || strings.Contains(name, "testdata") {
			t.Errorf("%s does not belong into a chart", name)
		}
	}
}

// TestAttackM13Licences: every module that is linked into liqo and liqoctl has a licence that is on the list.
func TestAttackM13Licences(t *testing.T) {
	known, err := licences(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	for module, want := range map[string]string{"std": "BSD-3-Clause", "k8s.io/client-go": "Apache-2.0", "github.com/spf13/pflag": "BSD-3-Clause"} {
		if got := known[module].expression(); got != want {
			t.Errorf("%s: %q, want %q", module, got, want)
		}
	}
	if text := string(notices(known)); strings.Count(text, strings.Repeat("-", 80)) < len(known) {
		t.Error("the notices do not have all licences")
	}
}

func TestIdentify(t *testing.T) {
	apache, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := identify(apache); err != nil || !slices.Equal(ids, []string{"Apache-2.0"}) {
		t.Errorf("%v, %v", ids, err)
	}
	for name, text := range map[string]string{
		"none":        "All rights reserved. Ask us before you use this.",
		"not allowed": "SPDX-License-Identifier: AGPL-3.0-only",
		"more terms":  string(apache) + strings.Repeat("The licensee shall also pay one euro for each pod, in advance, to the authors of this file.\n", 400),
	} {
		if ids, err := identify([]byte(text)); err == nil {
			t.Errorf("%s: accepted as %v", name, ids)
		}
	}
}

// TestBillOfMaterials: the document can be read by the library of the SPDX project, and names each module with its licence.
func TestBillOfMaterials(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{
		{Path: "example.com/a", Version: "v1.2.3", Sum: "h1:abc="},
		{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.0.1"}},
	}}
	made := contents{from: someCommit, version: "1.0", licences: map[string]licence{
		"std": {ids: []string{"BSD-3-Clause"}}, "example.com/a": {ids: []string{"MIT"}}, "example.com/b": {ids: []string{"Apache-2.0", "MIT"}},
	}}
	text, err := made.billOfMaterials("liqo-1.0", info)
	if err != nil {
		t.Fatal(err)
	}
	var document v2_3.Document
	if err := spdxjson.ReadInto(bytes.NewReader(text), &document); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range document.Packages {
		got = append(got, p.PackageName+" "+p.PackageVersion+" "+p.PackageLicenseConcluded)
	}
	want := []string{"liqo-1.0 1.0 Apache-2.0", "std go1.26.8 BSD-3-Clause", "example.com/a v1.2.3 MIT", "example.com/fork v1.0.1 Apache-2.0 AND MIT"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(document.Relationships) != len(want) {
		t.Errorf("%d relationships, want %d", len(document.Relationships), len(want))
	}
	delete(made.licences, "example.com/b")
	if _, err := made.billOfMaterials("liqo-1.0", info); err == nil {
		t.Error("a module without licence was accepted")
	}
}

func TestProvenance(t *testing.T) {
	text, err := contents{from: someCommit, version: "1.0", image: "registry.example.com/liqo@sha256:00"}.provenance([]checksum{{"liqo", "ff"}})
	if err != nil {
		t.Fatal(err)
	}
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	if err := json.Unmarshal(text, &statement); err != nil {
		t.Fatal(err)
	}
	if len(statement.Subject) != 1 || statement.Subject[0].Digest["sha256"] != "ff" ||
		statement.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != someCommit.id {
		t.Errorf("%s", text)
	}
}

func TestPinImage(t *testing.T) {
	values, err := os.ReadFile("../../deployments/liqo/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, values, 0o644); err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat("0", 64)
	mover := "sha256:" + strings.Repeat("1", 64)
	if err := pinImage(file, "registry.example.com/liqo", digest, mover); err != nil {
		t.Fatal(err)
	}
	pinned, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"\nimageName: registry.example.com/liqo\n", "\ndigest: " + digest + "\n",
		"\n  moverImage: registry.example.com/liqo-mover\n", "\n  moverDigest: " + mover + "\n",
	} {
		if !bytes.Contains(pinned, []byte(line)) {
			t.Errorf("%q is missing", line)
		}
	}
	if err := pinImage(file, "registry.example.com/liqo", digest, mover); err == nil {
		t.Error("values that are pinned already were accepted")
	}
}

func TestDigestOfTheImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	if got, err := imageDigest("a line\nbin/liqo-image.tar  r.example.com/liqo:1  "+digest, "liqo-image"); err != nil || got != digest {
		t.Error(got, err)
	}
	if _, err := imageDigest("nothing", "liqo-image"); err == nil {
		t.Error("accepted")
	}
}

// TestNoRegistry: a release whose image no registry serves is refused before anything is built.
func TestNoRegistry(t *testing.T) {
	for _, args := range [][]string{nil, {"--image", "localhost/liqo"}} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), "registry") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
