// SPDX-License-Identifier: Apache-2.0

package liqo_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"liqo.io/liqo/internal/offloading/kinds"
)

const rightsTable = "../../docs/rights.md"

// reasons are those of rules that no mark in the code asks for: the rights of peers, which are in the chart itself.
var reasons = map[string]string{
	"liqo-remote-peering-basic":    "a peer asks for resources, and reads the answer",
	"liqo-remote-peering-incoming": "a peer that is accepted: its remote namespaces, the network, the usage of its pods",
	"liqo-virtual-kubelet-remote":  "a peer that is accepted runs pods with all they need, and reads their state, logs and usage",
}

// places are what TestRights calls the namespaces of boundLater.
var places = map[string]string{
	everywhere: "all namespaces", "tenant": "each tenant namespace", "remote": "each remote namespace", "offloaded": "each offloaded namespace",
	"moving":          "each namespace of a volume that moves, while it moves",
	"kube-node-lease": "`kube-node-lease`", "liqo": "the namespace of Liqo", "kube-system": "`kube-system`", "liqo-storage": "`liqo-storage`",
}

// TestGoldenRights keeps docs/rights.md: every right of every role of the chart, and the code that needs it.
func TestGoldenRights(t *testing.T) {
	roles, where := rolesOf(t)
	marks := allMarks(t)
	var out bytes.Buffer
	out.WriteString("# Rights\n\nEvery right that the chart grants, and the code that needs it, for an installation with the default values " +
		"and the network between clusters.\n" +
		"This file is made from the chart: `go test ./deployments/liqo -run TestGolden -update`.\n" +
		"What RBAC cannot express is in the admission policies of the chart: for instance, which fields of an object a peer may write.\n")
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		if len(roles[name]) == 0 {
			continue
		}
		place := places[where[name]]
		if place == "" {
			t.Errorf("%s is bound in %q, which has no name in places", name, where[name])
		}
		role := strings.TrimPrefix(name, "Role ")
		fmt.Fprintf(&out, "\n## %s in %s\n\n| Resource | Verbs | Needed by |\n|---|---|---|\n", role, place)
		for _, rule := range roles[name] {
			for _, resource := range slices.Sorted(slices.Values(rule.Resources)) {
				why := marks.filesOf(role, rule, resource)
				if why == "" {
					why = reasons[role]
				}
				if why == "" {
					t.Errorf("%s: no mark in the code and no reason for %s %v", name, resource, rule.APIGroups)
				}
				named := ""
				if len(rule.ResourceNames) > 0 {
					named = " only `" + strings.Join(rule.ResourceNames, "`, `") + "`"
				}
				group := strings.Join(rule.APIGroups, ", ")
				if group = strings.TrimPrefix(group, ", "); group != "" {
					group = "." + group
				}
				fmt.Fprintf(&out, "| `%s%s`%s | %s | %s |\n", resource, group, named, strings.Join(rule.Verbs, ", "), why)
			}
			for _, url := range rule.NonResourceURLs {
				fmt.Fprintf(&out, "| `%s` | %s | %s |\n", url, strings.Join(rule.Verbs, ", "), reasons[role])
			}
		}
	}
	if *update {
		if err := os.WriteFile(rightsTable, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(rightsTable)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s: if this is intended, run the test with -update:\n%s", rightsTable, diff)
	}
}

// rightMarks are the marks +kubebuilder:rbac by the role to which they give rights.
type rightMarks map[string][]rightMark

type rightMark struct{ file, groups, resources string }

var (
	madeFrom  = regexp.MustCompile(`(?m)^# (\./.*)$`)
	rightLine = regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:.*?groups=([^,]*),resources=([^,]*),`)
)

// allMarks reads them from the packages that the generated files name.
func allMarks(t *testing.T) rightMarks {
	t.Helper()
	all := rightMarks{}
	files, err := filepath.Glob("files/rbac-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		made, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		role := "liqo-" + strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "rbac-"), ".yaml")
		packages := madeFrom.FindSubmatch(made)
		if packages == nil {
			t.Fatalf("%s does not name its packages", file)
		}
		for folder := range strings.FieldsSeq(string(packages[1])) {
			sources, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, source := range sources {
				text, err := os.ReadFile(source)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(source, "_test.go") {
					continue
				}
				for _, found := range rightLine.FindAllSubmatch(text, -1) {
					name := strings.TrimPrefix(filepath.ToSlash(source), "../../internal/")
					all[role] = append(all[role], rightMark{name, string(found[1]), string(found[2])})
				}
			}
		}
	}
	for _, role := range []struct{ name, namespace string }{{kinds.VirtualKubelet, kinds.Offloaded}, {kinds.Manager, kinds.Remote}} {
		for _, kind := range kinds.All() {
			if rule, needed := kind.Rule(role.name, role.namespace); needed {
				file := "offloading/kinds/" + strings.ToLower(kind.Local.Kind) + ".go"
				all["liqo-"+role.name] = append(all["liqo-"+role.name], rightMark{file, rule.APIGroups[0], rule.Resources[0]})
			}
		}
	}
	return all
}

// filesOf returns the files that need a resource in a role, whose name may have the suffix of its namespaces.
func (all rightMarks) filesOf(role string, rule rbacv1.PolicyRule, resource string) string {
	var files []string
	for base, marks := range all {
		if role != base && role != base+"-tenant" && role != base+"-remote" && role != base+"-lease" && role != base+"-offloaded" && role != base+"-storage" {
			continue
		}
		for _, mark := range marks {
			groups := strings.Split(strings.ReplaceAll(mark.groups, `"`, ""), ";")
			if slices.Contains(strings.Split(mark.resources, ";"), resource) &&
				slices.ContainsFunc(rule.APIGroups, func(group string) bool { return slices.Contains(groups, group) }) {
				files = append(files, "`"+mark.file+"`")
			}
		}
	}
	slices.Sort(files)
	return strings.Join(slices.Compact(files), ", ")
}
