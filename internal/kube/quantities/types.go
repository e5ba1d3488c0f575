// SPDX-License-Identifier: Apache-2.0

package quantities

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
)

// In reports whether values of a type hold quantities, at any depth. Values of interfaces and raw messages do not count: decoders leave them alone.
func In(t reflect.Type) bool { return in(t, map[reflect.Type]bool{}) }

func in(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == reflect.TypeFor[resource.Quantity]() {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return in(t.Elem(), seen)
	case reflect.Map:
		return in(t.Key(), seen) || in(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if in(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
