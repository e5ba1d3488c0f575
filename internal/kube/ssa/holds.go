// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// holds reports whether the live object proves that applying the intent would change nothing: the object has all values, and the managed
// fields of the owner are exactly the fields of the intent, so the apply would neither add nor release one.
// Without managed fields, or if it cannot parse them, it returns false.
func holds(intent map[string]any, live client.Object, owner, part string) bool {
	var owned map[string]any
	for _, entry := range live.GetManagedFields() {
		if entry.Manager == owner && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == part && entry.FieldsV1 != nil {
			if err := utiljson.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned); err != nil {
				return false
			}
		}
	}
	if owned == nil {
		return false
	}
	text, err := json.Marshal(live)
	if err != nil {
		return false
	}
	var values map[string]any
	if err := utiljson.Unmarshal(text, &values); err != nil {
		return false
	}
	if metadata, _ := intent["metadata"].(map[string]any); metadata["uid"] != nil && metadata["uid"] != string(live.GetUID()) {
		return false // intended for another object of that name: the API server reports a conflict
	}
	return sameMap(withoutIdentity(intent), values, owned)
}

// withoutIdentity returns the intent without the fields that identify the object, which have no field owner.
func withoutIdentity(intent map[string]any) map[string]any {
	rest := map[string]any{}
	for key, value := range intent {
		switch key {
		case "apiVersion", "kind":
		case "metadata":
			metadata, _ := value.(map[string]any)
			kept := map[string]any{}
			for key, value := range metadata {
				if key != "name" && key != "namespace" && key != "uid" {
					kept[key] = value
				}
			}
			if len(kept) > 0 {
				rest[key] = kept
			}
		default:
			rest[key] = value
		}
	}
	return rest
}

// same compares one value of the intent with the live value. owned holds the managed fields below it; it is empty for a value that is owned
// as a whole.
func same(intent, live any, owned map[string]any) bool {
	if len(owned) == 0 {
		return reflect.DeepEqual(intent, live)
	}
	switch intent := intent.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		return ok && sameMap(intent, live, owned)
	case []any:
		live, ok := live.([]any)
		return ok && sameList(intent, live, owned)
	}
	return false
}

func sameMap(intent, live, owned map[string]any) bool {
	fields := 0
	for key := range owned {
		if key != "." {
			fields++
		}
	}
	if fields != len(intent) {
		return false
	}
	for key, value := range intent {
		below, ok := owned["f:"+key].(map[string]any)
		if !ok {
			return false
		}
		there, ok := live[key]
		if !ok && zero(value) {
			continue // the object has the field, because we own it; the Go type omits zero values
		}
		if !ok || !same(value, there, below) {
			return false
		}
	}
	return true
}

func zero(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return value == nil || reflect.ValueOf(value).IsZero()
}

// sameList compares a list whose items are owned individually: by their keys ("k:"), or as a set ("v:").
func sameList(intent, live []any, owned map[string]any) bool {
	matched := map[int]bool{} // the items of the intent that are owned
	for key, below := range owned {
		if key == "." {
			continue
		}
		below, ok := below.(map[string]any)
		if !ok {
			return false
		}
		var matches func(any) bool
		switch kind, text, _ := strings.Cut(key, ":"); kind {
		case "k":
			var keys map[string]any
			if utiljson.Unmarshal([]byte(text), &keys) != nil {
				return false
			}
			matches = func(item any) bool { return hasKeys(item, keys) }
		case "v":
			var value any
			if utiljson.Unmarshal([]byte(text), &value) != nil {
				return false
			}
			matches = func(item any) bool { return reflect.DeepEqual(item, value) }
		default:
			return false
		}
		wanted, there := slices.IndexFunc(intent, matches), slices.IndexFunc(live, matches)
		if wanted < 0 || there < 0 || !same(intent[wanted], live[there], below) {
			return false
		}
		matched[wanted] = true
	}
	return len(matched) == len(intent)
}

// hasKeys accepts an item that lacks a key: the API server has set the key's default.
func hasKeys(item any, keys map[string]any) bool {
	fields, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for key, value := range keys {
		if has, ok := fields[key]; ok && !reflect.DeepEqual(has, value) {
			return false
		}
	}
	return true
}

// Satisfies records that the object of an intent, with which the applier has just written or recognised another one, needs no write for this one either. The
// caller knows that: it applies less than the whole intent to an object that exists.
func (a *Applier) Satisfies(intent runtime.ApplyConfiguration) {
	e, err := encode(intent, "")
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, known := a.last[e.target]; known {
		last.also = e.hash
		a.last[e.target] = last
	}
}

// has reports whether the intent is the one that was written, or one that the object satisfies.
func (w written) has(intent [sha256.Size]byte) bool { return w.intent == intent || w.also == intent }
