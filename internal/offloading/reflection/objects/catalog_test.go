// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"slices"
	"testing"

	"liqo.io/liqo/internal/offloading/kinds"
)

// TestCatalogue: each kind with workers is copied, and no other is.
func TestCatalogue(t *testing.T) {
	want := kinds.Where(func(kind *kinds.Kind) bool { return kind.Workers > 0 })
	var got []*kinds.Kind
	for i := range catalog {
		got = append(got, catalog[i].Kind)
	}
	for _, kind := range want {
		if !slices.Contains(got, kind) {
			t.Errorf("the catalogue has no row for %s", kind.Name())
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d rows in the catalogue, want %d", len(got), len(want))
	}
}
