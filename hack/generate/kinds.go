// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"liqo.io/liqo/internal/offloading/kinds"
)

const (
	kindsPath  = chart + "/files/kinds.yaml"
	valuesPath = chart + "/values.yaml"
	schemaPath = chart + "/values.schema.json"
)

// chartKinds is what the templates of the chart go through.
type chartKinds struct {
	// Rights are on what a peer may write everywhere, Bounded on what it may write where policies bound it.
	Rights  []kinds.Grouped `json:"rights"`
	Bounded []boundedRights `json:"bounded"`
	// Judged are the kinds whose finalizers, Described those whose labels and annotations are judged for all kinds together; Metadata is which of these
	// are allowed.
	Judged    []kinds.Grouped `json:"judged"`
	Described []kinds.Grouped `json:"described"`
	Metadata  []metadata      `json:"metadata"`
	Guards    []guard         `json:"guards"`
	// Written are counted as they are written. Claims, which Kubernetes writes as well, have a webhook of their own.
	Written []kinds.Grouped   `json:"written"`
	Most    map[string]string `json:"most"`
}

type boundedRights struct {
	Group     string   `json:"group"`
	Resource  string   `json:"resource"`
	Elsewhere []string `json:"elsewhere,omitempty"`
	Value     string   `json:"value,omitempty"`
	Without   []string `json:"without,omitempty"`
}

type metadata struct {
	Resource    string   `json:"resource"`
	Value       string   `json:"value"`
	Annotations []string `json:"annotations,omitempty"`
	Collected   bool     `json:"collected,omitempty"`
}

type guard struct {
	Name        string             `json:"name"`
	Group       string             `json:"group"`
	Resource    string             `json:"resource"`
	Validations []kinds.Validation `json:"validations"`
}

func rowsForChart() chartKinds {
	all := chartKinds{
		Rights:    kinds.Group(kinds.Where(func(kind *kinds.Kind) bool { return !kind.Rights.Bounded })),
		Judged:    kinds.Group(kinds.Where(func(kind *kinds.Kind) bool { return !kind.Judged && kind.Guard == nil })),
		Described: kinds.Group(kinds.Where(func(kind *kinds.Kind) bool { return kind.Metadata != nil })),
		Written:   kinds.Group(kinds.Where(func(kind *kinds.Kind) bool { return kind.Counted && kind.Foreign() && !kind.Data })),
		Most:      map[string]string{},
	}
	for _, kind := range kinds.All() {
		at := kind.Remote
		if r := kind.Rights; r.Bounded {
			all.Bounded = append(all.Bounded, boundedRights{at.Group, at.Plural, r.Elsewhere, r.Value, r.Without})
		}
		if m := kind.Metadata; m != nil {
			all.Metadata = append(all.Metadata, metadata{at.Plural, m.Value, m.Annotations, m.Collected})
		}
		if g := kind.Guard; g != nil {
			all.Guards = append(all.Guards, guard{g.Name, at.Group, at.Plural, g.Validations})
		}
		if kind.Most != "" {
			name := at.GroupResource().String()
			if at.Group != "" {
				name = "count/" + name
			}
			all.Most[name] = kind.Most
		}
	}
	return all
}

// chartData writes the rows for the templates of the chart.
func chartData() error {
	text, err := yaml.Marshal(rowsForChart())
	if err != nil {
		return err
	}
	return os.WriteFile(kindsPath, slices.Concat([]byte("# Made by `make generate` from the rows in internal/offloading/kinds.\n"), text), 0o644)
}

var (
	keysOfValues   = regexp.MustCompile(`(?s)(\n  metadata:\n    pods:\n.*?annotations: \[\]\n).*?(    customResources:\n)`)
	totalsOfValues = regexp.MustCompile(`(\n  totals: \{).*?(\}\n)`)
	keysOfSchema   = regexp.MustCompile(`(?s)("pods": \{"\$ref": "#/definitions/metadata"\},\n).*?( *"customResources": \{"\$ref": "#/definitions/metadata"\})`)
)

// allowedKeys writes the values peers.metadata of the kinds, and their schema.
func allowedKeys() error {
	var values, schema strings.Builder
	for _, kind := range kinds.All() {
		if kind.Metadata == nil {
			continue
		}
		name := kind.Metadata.Value
		words := strings.ToUpper(name[:1]) + name[1:]
		fmt.Fprintf(
			&values,
			"    %s:\n      # Further keys of labels of %s.\n      labels: []\n      # Further keys of annotations of %s.\n      annotations: []\n",
			name, words, words,
		)
		fmt.Fprintf(&schema, "            %q: {\"$ref\": \"#/definitions/metadata\"},\n", name)
	}
	if err := errors.Join(inPlace(valuesPath, keysOfValues, values.String()), inPlace(valuesPath, totalsOfValues, totals())); err != nil {
		return err
	}
	return inPlace(schemaPath, keysOfSchema, schema.String())
}

// totals are the bounds over all namespaces of a peer.
func totals() string {
	var all []string
	for _, kind := range kinds.All() {
		if kind.Total != "" {
			all = append(all, kind.Remote.GroupResource().String()+": "+kind.Total)
		}
		if kind == kinds.Service {
			all = append(all, "services.nodeports: 100", "services.loadbalancers: 10")
		}
	}
	return strings.Join(append(all, "requests.storage: 2Ti"), ", ")
}

// inPlace replaces what is between the two groups of a pattern.
func inPlace(path string, pattern *regexp.Regexp, part string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	at := pattern.FindSubmatchIndex(text)
	if at == nil {
		return fmt.Errorf("%s: want a part that matches %s", path, pattern)
	}
	return os.WriteFile(path, slices.Concat(text[:at[3]], []byte(part), text[at[4]:]), 0o644)
}

// merged adds rules on single resources to others, as controller-gen does: a rule for each group and set of verbs.
func merged(rules, more []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if len(more) == 0 {
		return rules
	}
	type place struct{ group, resource string }
	verbs := map[place][]string{}
	var whole []rbacv1.PolicyRule
	for _, rule := range slices.Concat(rules, more) {
		if len(rule.APIGroups) != 1 || len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
			whole = append(whole, rule)
			continue
		}
		for _, resource := range rule.Resources {
			at := place{rule.APIGroups[0], resource}
			verbs[at] = append(verbs[at], rule.Verbs...)
		}
	}
	grouped := map[place]*rbacv1.PolicyRule{}
	for at, all := range verbs {
		slices.Sort(all)
		all = slices.Compact(all)
		key := place{at.group, strings.Join(all, ",")}
		if grouped[key] == nil {
			grouped[key] = &rbacv1.PolicyRule{APIGroups: []string{at.group}, Verbs: all}
		}
		grouped[key].Resources = append(grouped[key].Resources, at.resource)
	}
	for _, rule := range grouped {
		slices.Sort(rule.Resources)
		whole = append(whole, *rule)
	}
	key := func(rule rbacv1.PolicyRule) string {
		return strings.Join(rule.APIGroups, "&") + " + " + strings.Join(rule.Resources, "&") + " + " + strings.Join(rule.ResourceNames, "&")
	}
	slices.SortFunc(whole, func(a, b rbacv1.PolicyRule) int { return cmp.Compare(key(a), key(b)) })
	return whole
}
