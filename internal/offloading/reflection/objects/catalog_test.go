// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"slices"
	"testing"
)

// TestCatalogue: each kind that is copied has a projection, and hooks belong to one of them.
func TestCatalogue(t *testing.T) {
	all := catalogue()
	for _, copied := range all {
		if copied.project == nil || copied.Copy == nil && !slices.ContainsFunc(hooks, func(with kind) bool { return with.Kind == copied.Kind }) {
			t.Errorf("no projection for %s", copied.Name())
		}
	}
	for _, with := range hooks {
		if !slices.ContainsFunc(all, func(copied kind) bool { return copied.Kind == with.Kind }) || with.Copy != nil {
			t.Errorf("hooks for %s, which has no workers or a projection in its row", with.Name())
		}
	}
}
