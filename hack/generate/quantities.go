// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// The pattern that the generator writes for a quantity takes any exponent, and Go's quantities are computed with as many digits:
// a peer who writes "1e-999999999" would keep us, or an API server, busy for minutes with each look at it.
const (
	anyQuantity     = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	boundedQuantity = `^(\+|-)?([0-9]{1,19}(\.[0-9]{0,9})?|\.[0-9]{1,9})([KMGTPE]i|[numkMGTPE]|[eE](\+|-)?[0-9]{1,2})?$`
)

// wholePod is the schema of a pod in a definition without any bounds.
const wholePod = "                type: object\n                x-kubernetes-preserve-unknown-fields: true\n"

func boundQuantities() error {
	paths, err := filepath.Glob(crds + "/*.yaml")
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		bounded := bytes.ReplaceAll(text, []byte(anyQuantity), []byte(boundedQuantity))
		if strings.HasSuffix(path, "_shadowpods.yaml") {
			if bounded, err = boundPod(bounded); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		if !bytes.Equal(bounded, text) {
			if err := os.WriteFile(path, bounded, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// boundPod is the schema of a pod that only bounds its quantities.
func boundPod(text []byte) ([]byte, error) {
	if bytes.Count(text, []byte(wholePod)) != 1 {
		return nil, fmt.Errorf("want one place with\n%s", wholePod)
	}
	schema, err := yaml.Marshal(map[string]any{"properties": quantities(reflect.TypeFor[corev1.PodSpec]())["properties"]})
	if err != nil {
		return nil, err
	}
	const indent = "\n                "
	inside := strings.TrimPrefix(indent, "\n") + strings.ReplaceAll(strings.TrimSpace(string(schema)), "\n", indent) + "\n"
	return bytes.Replace(text, []byte(wholePod), []byte(inside+wholePod), 1), nil
}

// quantities is a schema of a type that accepts everything except quantities out of range; nil if the type has no quantities.
func quantities(of reflect.Type) map[string]any {
	switch {
	case of == reflect.TypeFor[resource.Quantity]():
		return map[string]any{
			"anyOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}, "nullable": true,
			"pattern": boundedQuantity, "x-kubernetes-int-or-string": true,
		}
	case of.Kind() == reflect.Pointer:
		return quantities(of.Elem())
	case of.Kind() == reflect.Slice, of.Kind() == reflect.Map:
		inside := quantities(of.Elem())
		switch {
		case inside == nil:
			return nil
		case of.Kind() == reflect.Slice:
			return map[string]any{"type": "array", "nullable": true, "items": inside}
		}
		return map[string]any{"type": "object", "nullable": true, "additionalProperties": inside}
	case of.Kind() != reflect.Struct:
		return nil
	}
	properties := map[string]any{}
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inside := quantities(field.Type)
		switch {
		case inside == nil || name == "-":
		case name != "":
			properties[name] = inside
		default: // its fields are those of the whole
			if embedded, ok := inside["properties"].(map[string]any); ok {
				for name, schema := range embedded {
					properties[name] = schema
				}
			}
		}
	}
	if len(properties) == 0 {
		return nil
	}
	return map[string]any{"type": "object", "nullable": true, "properties": properties, "x-kubernetes-preserve-unknown-fields": true}
}
