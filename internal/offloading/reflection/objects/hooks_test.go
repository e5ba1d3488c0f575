// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/offloading/kinds"
)

// TestHooks: a row has the hooks for it, and no others.
func TestHooks(t *testing.T) {
	hooks := []Hooks{{Kind: kinds.Ingress}, {Kind: kinds.Secret, Lacks: func(client.Object) error { return nil }}}
	for row, want := range map[*kinds.Kind]bool{kinds.Secret: true, kinds.Ingress: false, kinds.ConfigMap: false} {
		if got := withHooks(row, hooks); got.Kind != row || (got.Lacks != nil) != want {
			t.Errorf("%s: hooks %+v", row.Name(), got)
		}
	}
}
