// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type tree = map[string]any

const manifests = "../deployments/liqo/crds"

// TestSchema holds the manifests to every row of testdata/contract.txt, and every manifest to a row.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile("testdata/contract.txt")
	if err != nil {
		t.Fatal(err)
	}
	crds := load(t)
	seen := map[string]bool{}
	var now *kind
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "", "#":
		case "kind":
			words := strings.Fields(rest)
			now = crds[words[0]]
			if now == nil {
				t.Fatalf("no manifest of %s in %s; run: make generate", words[0], manifests)
			}
			now.checkColumns(t)
			now.columns = nil
			seen[words[0]] = true
			if have := now.head(); have != rest {
				t.Errorf("the manifest has: %s\nthe contract has: %s", have, rest)
			}
		case "column":
			now.columns = append(now.columns, rest)
		case "field":
			now.checkField(t, rest)
		default:
			t.Errorf("testdata/contract.txt: unknown line %q", line)
		}
	}
	for name, k := range crds {
		k.checkColumns(t)
		if !seen[name] {
			t.Errorf("%s has a manifest but no rows in testdata/contract.txt", name)
		}
	}
	if len(crds) != 11 {
		t.Errorf("%d kinds, want eleven", len(crds))
	}
}

// kind is one manifest.
type kind struct {
	name    string
	spec    tree
	version tree
	columns []string
}

func load(t *testing.T) map[string]*kind {
	t.Helper()
	files, err := filepath.Glob(manifests + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*kind{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd tree
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		k := &kind{name: crd["metadata"].(tree)["name"].(string), spec: crd["spec"].(tree)}
		versions := k.spec["versions"].([]any)
		k.version = versions[0].(tree)
		if len(versions) != 1 || k.version["name"] != "v1alpha1" || k.version["served"] != true || k.version["storage"] != true {
			t.Errorf("%s: want v1alpha1 alone, served and stored", k.name)
		}
		all[k.name] = k
	}
	return all
}

func words(list any) string {
	items, _ := list.([]any)
	if len(items) == 0 {
		return "-"
	}
	text := make([]string, len(items))
	for i, item := range items {
		text[i] = fmt.Sprint(item)
	}
	return strings.Join(text, ",")
}

// head is the kind's row as testdata/contract.txt has it.
func (k *kind) head() string {
	names := k.spec["names"].(tree)
	status := "no"
	if subresources, ok := k.version["subresources"].(tree); ok && subresources["status"] != nil {
		status = "yes"
	}
	return fmt.Sprintf("%s scope %s short %s categories %s status %s", k.name, k.spec["scope"], words(names["shortNames"]), words(names["categories"]), status)
}

// checkColumns compares the columns of kubectl get, in order. It does so once all rows are read.
func (k *kind) checkColumns(t *testing.T) {
	t.Helper()
	if k.columns == nil {
		return
	}
	var have []string
	columns, _ := k.version["additionalPrinterColumns"].([]any)
	for _, column := range columns {
		c := column.(tree)
		priority := c["priority"]
		if priority == nil {
			priority = 0
		}
		have = append(have, fmt.Sprintf("%s | %s | %s | %v", c["name"], c["jsonPath"], c["type"], priority))
	}
	if !slices.Equal(have, k.columns) {
		t.Errorf("%s has the columns\n%s\npromised:\n%s", k.name, strings.Join(have, "\n"), strings.Join(k.columns, "\n"))
	}
}

func (k *kind) checkField(t *testing.T, row string) {
	t.Helper()
	cells := strings.Split(row, " | ")
	for len(cells) < 4 {
		cells = append(cells, "")
	}
	path, want, required, notes := cells[0], cells[1], cells[2] == "required", strings.Fields(cells[3])
	node, isRequired := k.find(path)
	if node == nil {
		t.Errorf("%s has no field %s", k.name, path)
		return
	}
	if have := describe(node); have != want {
		t.Errorf("%s %s is %q, promised %q", k.name, path, have, want)
	}
	if isRequired != required {
		t.Errorf("%s %s: required %t, promised %t", k.name, path, isRequired, required)
	}
	for _, note := range notes {
		key, value, _ := strings.Cut(note, "=")
		if key == "min" {
			key = "minimum"
		}
		have := fmt.Sprint(node[key])
		switch key {
		case "enum":
			options := strings.Split(words(node["enum"]), ",")
			promised := strings.Split(value, ",")
			slices.Sort(options)
			slices.Sort(promised)
			if !slices.Equal(options, promised) {
				t.Errorf("%s %s allows %v, promised %v", k.name, path, options, promised)
			}
		case "pattern":
			if node["pattern"] == nil {
				t.Errorf("%s %s has no pattern", k.name, path)
			}
		default:
			if have != value {
				t.Errorf("%s %s has %s %s, promised %s", k.name, path, key, have, value)
			}
		}
	}
}

// find walks a path such as status.images[].names or status.map{key}.phase through the schema.
func (k *kind) find(path string) (node tree, required bool) {
	node = k.version["schema"].(tree)["openAPIV3Schema"].(tree)
	for part := range strings.SplitSeq(path, ".") {
		name := strings.TrimSuffix(strings.TrimSuffix(part, "[]"), "{key}[]")
		name = strings.TrimSuffix(name, "{key}")
		required = false
		list, _ := node["required"].([]any)
		required = slices.Contains(list, any(name))
		properties, _ := node["properties"].(tree)
		next, ok := properties[name].(tree)
		if !ok {
			return nil, false
		}
		node = next
		if strings.Contains(part, "{key}") {
			node = node["additionalProperties"].(tree)
		}
		if strings.HasSuffix(part, "[]") {
			node = node["items"].(tree)
		}
	}
	return node, required
}

func describe(node tree) string {
	if node["x-kubernetes-int-or-string"] == true {
		return "int-or-string"
	}
	kind, _ := node["type"].(string)
	if values, ok := node["additionalProperties"].(tree); ok {
		of := describe(values)
		if strings.HasPrefix(of, "array") {
			of = "array"
		}
		return "map of " + of
	}
	if items, ok := node["items"].(tree); ok {
		return "array of " + describe(items)
	}
	return kind
}
