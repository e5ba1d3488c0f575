// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const core = "k8s.io/api/core/v1"

// A field of the API is a type and a name in JSON, such as PodSpec.volumes. Ephemeral containers have the fields of containers under another type.
func nameOf(of reflect.Type) string {
	if of == reflect.TypeFor[corev1.EphemeralContainerCommon]() {
		of = reflect.TypeFor[corev1.Container]()
	}
	return of.Name()
}

// inner returns the type within pointers, lists and maps.
func inner(of reflect.Type) reflect.Type {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	return of
}

func isStruct(of reflect.Type) bool { return of.Kind() == reflect.Struct && of.PkgPath() == core }

// each calls do for each field of a struct, with its name in JSON; those of inlined types are fields of these types.
func each(of reflect.Type, do func(i int, field, name string, is reflect.Type)) {
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		do(i, nameOf(of)+"."+name, name, of.Field(i).Type)
	}
}

// allFields returns the fields of a type, and of all types below.
func allFields(root reflect.Type) (all []string) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		if of = inner(of); !isStruct(of) || seen[of] {
			return
		}
		seen[of] = true
		each(of, func(_ int, field, name string, is reflect.Type) {
			if name != "" && !slices.Contains(all, field) {
				all = append(all, field)
			}
			walk(is)
		})
	}
	walk(root)
	return all
}

// visit calls do for each field of a value that is not zero, in the order of the API.
func visit(value reflect.Value, do func(field string, value reflect.Value)) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			visit(value.Elem(), do)
		}
	case reflect.Slice:
		for i := range value.Len() {
			visit(value.Index(i), do)
		}
	case reflect.Struct:
		if !isStruct(value.Type()) {
			return
		}
		each(value.Type(), func(i int, field, name string, _ reflect.Type) {
			if entry := value.Field(i); !isEmpty(entry) {
				if name != "" {
					do(field, entry)
				}
				visit(entry, do) // nothing if do has removed it
			}
		})
	}
}

// isEmpty reports whether JSON leaves out a value.
func isEmpty(value reflect.Value) bool {
	return value.IsZero() || (value.Kind() == reflect.Slice || value.Kind() == reflect.Map) && value.Len() == 0
}

// values returns the values of each field in a pod. Those of a field with further fields are only counted, as null.
func values(t *testing.T, spec *corev1.PodSpec) map[string][]any {
	t.Helper()
	all := map[string][]any{}
	visit(reflect.ValueOf(spec), func(field string, value reflect.Value) {
		if isStruct(inner(value.Type())) {
			all[field] = append(all[field], nil)
			return
		}
		all[field] = append(all[field], plain(t, value.Interface()))
	})
	return all
}

// plain returns a value as JSON has it.
func plain(t *testing.T, value any) (result any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	return result
}

// without removes all values of some fields.
func without(spec *corev1.PodSpec, fields []string) *corev1.PodSpec {
	left := spec.DeepCopy()
	visit(reflect.ValueOf(left), func(field string, value reflect.Value) {
		if slices.Contains(fields, field) {
			value.SetZero()
		}
	})
	return left
}
