// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// apiPage writes the page of kinds from the definitions, which are written before.
func apiPage() error {
	paths, err := filepath.Glob(crds + "/*.yaml")
	if err != nil {
		return err
	}
	var kinds []apiextensionsv1.CustomResourceDefinition
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var kind apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &kind); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		kinds = append(kinds, kind)
	}
	return page("api.md", "Kinds and their fields", "the types in apis", apiText(kinds))
}

func apiText(kinds []apiextensionsv1.CustomResourceDefinition) string {
	slices.SortFunc(kinds, func(a, b apiextensionsv1.CustomResourceDefinition) int {
		return cmp.Or(cmp.Compare(a.Spec.Group, b.Spec.Group), cmp.Compare(a.Spec.Names.Kind, b.Spec.Names.Kind))
	})
	var out bytes.Buffer
	out.WriteString(
		"Every kind that Liqo defines, and every field of it.\n`kubectl explain` prints the same.\n`[]` is each entry of a list, `{}` each value of a map.\n\n",
	)
	out.WriteString("| Kind | Group and version | Scope | What it is |\n|---|---|---|---|\n")
	for _, kind := range kinds {
		version := kind.Spec.Versions[0]
		fmt.Fprintf(&out, "| [%s](#%s) | `%s/%s` | %s | %s |\n", kind.Spec.Names.Kind, strings.ToLower(kind.Spec.Names.Kind),
			kind.Spec.Group, version.Name, kind.Spec.Scope, cell(version.Schema.OpenAPIV3Schema.Description))
	}
	for _, kind := range kinds {
		fmt.Fprintf(&out, "\n## %s\n\n| Field | Type | Meaning |\n|---|---|---|\n", kind.Spec.Names.Kind)
		schema := kind.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			if properties, ok := schema.Properties[part]; ok {
				fields(&out, part, properties, slices.Contains(schema.Required, part))
			}
		}
	}
	return out.String()
}

// fields writes a row of a field and those below it, except where the content is that of another kind.
func fields(out *bytes.Buffer, path string, schema apiextensionsv1.JSONSchemaProps, required bool) {
	fmt.Fprintf(out, "| `%s` | %s | %s |\n", path, typeText(schema, required), cell(meaning(schema)))
	for ; schema.Items != nil || schema.AdditionalProperties != nil; required = false {
		if schema.Items != nil {
			path, schema = path+"[]", *schema.Items.Schema
		} else {
			path, schema = path+"{}", *schema.AdditionalProperties.Schema
		}
	}
	_, condition := schema.Properties["lastTransitionTime"]
	_, standard := schema.Properties["observedGeneration"]
	if schema.XPreserveUnknownFields != nil || condition && standard {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		fields(out, path+"."+name, schema.Properties[name], slices.Contains(schema.Required, name))
	}
}

func typeText(schema apiextensionsv1.JSONSchemaProps, required bool) string {
	text := schema.Type
	switch {
	case schema.XIntOrString:
		text = "integer or string"
	case schema.Items != nil:
		text = "list of " + typeText(*schema.Items.Schema, false)
	case schema.AdditionalProperties != nil:
		text = "map of " + typeText(*schema.AdditionalProperties.Schema, false)
	case len(schema.Enum) > 0:
		var values []string
		for _, value := range schema.Enum {
			values = append(values, strings.Trim(string(value.Raw), `"`))
		}
		text = code(values)
	}
	if required {
		text += ", required"
	}
	if schema.Default != nil && string(schema.Default.Raw) != "{}" {
		text += ", default `" + strings.Trim(string(schema.Default.Raw), `"`) + "`"
	}
	return text
}

// meaning is the description of a field, and what its rules demand.
func meaning(schema apiextensionsv1.JSONSchemaProps) string {
	texts := []string{schema.Description}
	for _, rule := range schema.XValidations {
		if rule.Message != "" {
			texts = append(texts, "Rule: "+strings.TrimSuffix(rule.Message, ".")+".")
		}
	}
	return strings.Join(texts, " ")
}
