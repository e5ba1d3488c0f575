// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	liqo "liqo.io/liqo/deployments/liqo"
	"liqo.io/liqo/deployments/liqo/charttest"
)

// noEffect is an entry of files/values-without-effect.yaml.
type noEffect struct {
	Because string   `json:"because"`
	Values  []string `json:"values"`
	Unless  []any    `json:"unless"`
	Only    string   `json:"only"`
}

// withoutEffect returns the documented values without effect, by path.
func withoutEffect(t *testing.T) map[string]noEffect {
	t.Helper()
	raw, err := fs.ReadFile(liqo.FS, "files/values-without-effect.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var entries []noEffect
	if err := yaml.UnmarshalStrict(raw, &entries); err != nil {
		t.Fatal(err)
	}
	found := map[string]noEffect{}
	for _, entry := range entries {
		for _, path := range entry.Values {
			if _, twice := found[path]; twice || entry.Because == "" {
				t.Errorf("%s is listed twice, or has no reason", path)
			}
			found[path] = entry
		}
	}
	return found
}

// documentedValues returns the documented defaults, as a tree and by path.
func documentedValues(t *testing.T) (tree, paths map[string]any) {
	t.Helper()
	raw, err := os.ReadFile("testdata/documented-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, &tree); err != nil {
		t.Fatal(err)
	}
	return tree, flat(tree)
}

// withNotes renders the chart, and returns its objects and the notes about values without effect that Helm prints after the installation.
func withNotes(t *testing.T, values map[string]any) (objects []*unstructured.Unstructured, notes []string) {
	t.Helper()
	files, err := charttest.RenderFiles(t, nil, values)
	if err == nil {
		objects, err = charttest.Parse(files)
	}
	if err != nil {
		t.Fatal(err)
	}
	return objects, regexp.MustCompile(`(?m)^NOTE: .*$`).FindAllString(files["liqo/templates/NOTES.txt"], -1)
}

// TestDocumentedValues: the chart knows every documented value. One without effect changes no object, and gets one note with the reason.
// (TestEveryValueMatters installs with each of the others, and proves that it has an effect.)
func TestDocumentedValues(t *testing.T) {
	_, documented := documentedValues(t)
	table, known := withoutEffect(t), leaves(t)
	bare := charttest.Render(t)
	for path, standard := range documented {
		if _, here := known["proxy.imageName"]; !here && strings.HasPrefix(path, "proxy.") {
			continue // the process comes with in-band peering
		}
		entry, without := table[path]
		if _, works := known[path]; !works && !without {
			t.Errorf("%s is documented, and the chart does not know it", path)
		}
		if !without {
			continue
		}
		contents := []any{another(t, path, standard)}
		if entry.Only != "" {
			contents = []any{standard, "registry.example.com/" + standard.(string)}
		}
		for _, content := range contents {
			values := charttest.Values(t)
			charttest.Set(values, path, content)
			objects, have := withNotes(t, values)
			if !same(t, objects, bare) {
				t.Errorf("%s=%v changes an object", path, content)
			}
			if want := []string{"NOTE: " + path + " has no effect: " + entry.Because}; !slices.Equal(have, want) {
				t.Errorf("%s=%v: notes %q, want %q", path, content, have, want)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(table)) {
		if _, is := documented[path]; !is {
			t.Errorf("%s is listed without effect, and is not documented", path)
		}
	}
}

// TestDocumentedFile: the chart installs with the documented defaults of all values at once, with a note for each reason only.
func TestDocumentedFile(t *testing.T) {
	values, _ := documentedValues(t)
	for path, content := range flat(charttest.Required()) {
		charttest.Set(values, path, content)
	}
	if _, here := leaves(t)["proxy.imageName"]; !here {
		delete(values, "proxy")
	}
	objects, have := withNotes(t, values)
	if all := text(t, objects); strings.Contains(all, "liqotech/") || strings.Contains(all, "envoyproxy/") {
		t.Error("an image of the documentation runs, which contains none of our processes")
	}
	if len(have) != 2 || !strings.Contains(have[0], "NOTE: telemetry.enable has no effect: ") ||
		!strings.Contains(have[1], "auth.imageName, controllerManager.imageName, ") {
		t.Errorf("notes %q", have)
	}
}
