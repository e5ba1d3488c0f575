// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"testing"

	"liqo.io/liqo/internal/offloading/reflection/engine"
)

// TestGranted: a copy goes when its change was refused several times in a row, and nothing is kept about a mapping that has ended.
func TestGranted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	mapping, other, g := &engine.Mapping{Context: ctx}, &engine.Mapping{Context: t.Context()}, &granted{}
	for want := 1; want < surelyRefused; want++ {
		if got := g.deny(mapping, "web"); got != want {
			t.Errorf("refusal %d counts as %d", want, got)
		}
	}
	g.allow(mapping, "web")
	if got := g.deny(mapping, "web"); got != 1 {
		t.Errorf("after a change that was taken, a refusal counts as %d", got)
	}
	if got := g.deny(mapping, "db"); got != 1 {
		t.Errorf("the first refusal of another object counts as %d", got)
	}
	if got := g.deny(other, "web"); got != 1 {
		t.Errorf("the first refusal of another peer counts as %d", got)
	}
	if !g.refuse(mapping, errors.New("no rights")) || g.reason(mapping) == nil {
		t.Error("a refusal is not known")
	}
	cancel()
	g.end(mapping, func() {})
	if g.refuse(mapping, errors.New("no rights")) || g.deny(mapping, "web") < surelyRefused {
		t.Error("a mapping that has ended is waited for")
	}
	if len(g.refused) != 0 || len(g.denied) != 1 {
		t.Errorf("%d and %d mappings are remembered, want those that have not ended", len(g.refused), len(g.denied))
	}
}
