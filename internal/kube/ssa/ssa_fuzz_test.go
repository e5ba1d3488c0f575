// SPDX-License-Identifier: Apache-2.0

package ssa

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func managedFields(raw string) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{
		{Manager: "another", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)},
		{Manager: owner, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)},
		{Manager: owner, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(raw)},
	}
}

// FuzzFingerprint: two lists of managed fields have the same fingerprint if they mean the same, and only then. Replacing them by their fingerprint does not
// change it.
func FuzzFingerprint(f *testing.F) {
	f.Add(`{"f:spec":{"f:a":{},"f:b":{}}}`, `{"f:spec":{"f:b":{},"f:a":{}}}`)
	f.Add(`{"f:spec":{"f:a":{}}}`, `{"f:spec":{"f:b":{}}}`)
	f.Add(`{"f:a":{}}`, `{"f:a":{"f:b":{}}}`)
	f.Add(`{"f:a":1}`, `{"f:a":1.0}`)
	f.Add(`{"a":"\ud800"}`, `{"a":"\ufffd"}`)
	f.Add(`"0000"`, `"0000000000000000000000000000000000000000000000000000000000000001"`)
	f.Add(`"00000000000000000000000000000000000000000000000000000000000000010"`, `"x"`)
	f.Add(``, `null`)
	f.Add(`{`, `{}`)
	f.Fuzz(func(t *testing.T, one, other string) {
		var decoded [2]any
		var sums [2][32]byte
		for i, raw := range []string{one, other} {
			live := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: managedFields(raw)}}
			sums[i] = owned(live, owner, "")
			for range 2 {
				Fingerprint(live, owner)
				if sum := owned(live, owner, ""); sum != sums[i] {
					t.Fatalf("the fingerprint of %q becomes %x, was %x", raw, sum, sums[i])
				}
				if entries := live.GetManagedFields(); len(entries) != 1 || len(entries[0].FieldsV1.GetRawBytes()) != 66 {
					t.Fatalf("%q is kept as %v", raw, entries)
				}
			}
			err := utiljson.Unmarshal([]byte(raw), &decoded[i])
			if _, hashed := decoded[i].(string); hashed {
				return
			}
			if (sums[i] == noFingerprint) != (err != nil) {
				t.Fatalf("the fingerprint of %q, %v, is %x", raw, err, sums[i])
			}
			if err != nil {
				return
			}
		}
		text := [2]string{}
		for i := range decoded {
			encoded, err := json.Marshal(decoded[i])
			if err != nil {
				t.Fatal(err)
			}
			text[i] = string(encoded)
		}
		if same := text[0] == text[1]; same != (sums[0] == sums[1]) {
			t.Fatalf("%q and %q have the fingerprints %x and %x", one, other, sums[0], sums[1])
		}
	})
}

// has reports whether a live value has all of an intent, wherever an API server may put it.
func has(live, intent any) bool {
	switch intent := intent.(type) {
	case map[string]any:
		fields, ok := live.(map[string]any)
		for key, value := range intent {
			if there, is := fields[key]; !ok || !is && !zero(value) || is && !has(there, value) {
				return false
			}
		}
		return ok
	case []any:
		items, ok := live.([]any)
		for _, value := range intent {
			if !slices.ContainsFunc(items, func(item any) bool { return has(item, value) }) {
				return false
			}
		}
		return ok
	}
	return reflect.DeepEqual(live, intent)
}

// FuzzHolds: a live object that lacks something of an intent never counts as up to date, whatever its managed fields contain.
func FuzzHolds(f *testing.F) {
	const managed = `{"f:spec":{"f:replicas":{},"f:ports":{"k:{\"port\":80}":{".":{},"f:port":{},"f:name":{}}},"f:args":{"v:\"a\"":{},"v:\"b\"":{}}}}`
	const intent = `{"spec":{"replicas":1,"ports":[{"port":80,"name":"http"}],"args":["a","b"]}}`
	f.Add(intent, `{"spec":{"replicas":1,"ports":[{"port":443},{"port":80,"name":"http"}],"args":["b","a"],"other":true}}`, managed)
	f.Add(intent, `{"spec":{"replicas":2,"ports":[{"port":80,"name":"http"}],"args":["a","b"]}}`, managed)
	f.Add(intent, `{"spec":{"replicas":1,"ports":[{"port":80,"name":"ssh"}],"args":["a","b"]}}`, managed)
	f.Add(intent, `{"spec":{"replicas":1,"ports":[{"port":80,"name":"http"}],"args":["a"]}}`, managed)
	f.Add(intent, `{}`, `{"f:spec":{}}`)
	f.Add(`{"spec":{"a":1}}`, `{"spec":{"a":2}}`, `{"f:spec":{"f:a":{}}}`)
	f.Add(`{"spec":{"a":0,"b":[],"c":{}}}`, `{"spec":{}}`, `{"f:spec":{"f:a":{},"f:b":{},"f:c":{}}}`)
	f.Add(`{"l":[{"a":1}]}`, `{"l":[{"a":2}]}`, `{"f:l":{"k:{}":{}}}`)                          // a key without fields
	f.Add(`{"l":["a","b"]}`, `{"l":["a"]}`, `{"f:l":{"v:\"a\"":{},"v: \"a\"":{}}}`)             // the same item twice
	f.Add(`{"l":[{"a":1},{"a":2}]}`, `{"l":[{"a":1}]}`, `{"f:l":{"k:{\"a\":1}":{},"k:{}":{}}}`) // the same item by two keys
	f.Add(`{"l":[1]}`, `{"l":[1]}`, `{"f:l":{"i:0":{}}}`)
	f.Add(`{"metadata":{"name":"x","labels":{"a":"b"}}}`, `{"metadata":{"labels":{"a":"c"}}}`, `{"f:metadata":{"f:labels":{"f:a":{}}}}`)
	f.Fuzz(func(t *testing.T, intent, live, managed string) {
		var wanted, found map[string]any
		if utiljson.Unmarshal([]byte(intent), &wanted) != nil || utiljson.Unmarshal([]byte(live), &found) != nil || found == nil {
			return
		}
		if metadata, is := found["metadata"].(map[string]any); found["metadata"] != nil && !is || metadata["managedFields"] != nil {
			return // no object of an API server
		}
		if !json.Valid([]byte(managed)) {
			return // an unstructured object cannot have these managed fields
		}
		object := &unstructured.Unstructured{Object: found}
		object.SetManagedFields(managedFields(managed))
		if holds(wanted, object, owner, "") && !has(object.Object, withoutIdentity(wanted)) {
			t.Errorf("%s counts as up to date, desired is %s, the managed fields are %s", live, intent, managed)
		}
	})
}
