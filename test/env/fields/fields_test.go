// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"fmt"
	"testing"
)

// TestDifferences: a comparison that finds nothing would let everything pass.
func TestDifferences(t *testing.T) {
	got := map[string]any{"spec": map[string]any{"count": int64(3), "plain": false, "names": []any{"a", "b-17"}, "more": "x"}}
	for want, differ := range map[string]string{
		"spec: {count: 3, plain: false, names: [a, b-17]}": "[]",
		"spec: {names: ['*', '~b-[0-9]+'], gone: null}":    "[]",
		"spec: {count: 4}":          "[spec.count is 3, want 4]",
		"spec: {plain: true}":       "[spec.plain is false, want true]",
		"spec: {fancy: false}":      "[spec.fancy is <nil>, want false]",
		"spec: {more: null}":        "[spec.more is x, want <nil>]",
		"spec: {names: [a]}":        "[spec.names is [a b-17], want [a]]",
		"spec: {names: [a, ~b-]}":   "[spec.names.1 is b-17, want ~b-]",
		"spec: {gone: '*'}":         "[spec.gone is <nil>, want *]",
		"spec: {more: {x: 1}}":      "[spec.more is x, want map[x:1]]",
		"spec: {more: z, names: 7}": "[spec.more is x, want z spec.names is [a b-17], want 7]",
	} {
		if is := fmt.Sprint(Differences(got, want)); is != differ {
			t.Errorf("%s:\n%s, want\n%s", want, is, differ)
		}
	}
	if got := At(got, "spec.names.1"); got != "b-17" {
		t.Errorf("At is %v", got)
	}
	if got := At(map[string]any{}, "spec.names.1"); got != nil {
		t.Errorf("At nothing is %v", got)
	}
}
