// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"liqo.io/liqo/playground/internal/spec"
)

// TestLookPath: components with different search paths start at the same time, and each finds its own program.
func TestLookPath(t *testing.T) {
	before := os.Getenv("PATH")
	var group sync.WaitGroup
	for range 50 {
		dir := t.TempDir()
		want := filepath.Join(dir, "program")
		if err := os.WriteFile(want, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			c := spec.Component{Argv: []string{"program"}, Env: []string{"A=b", "PATH=/nowhere:" + dir}}
			if path, err := lookPath(c); path != want || err != nil {
				t.Errorf("found %q, error %v, want %s", path, err, want)
			}
		})
	}
	group.Wait()
	if after := os.Getenv("PATH"); after != before {
		t.Errorf("PATH of process 1, which all components share, changed from %s to %s", before, after)
	}
	missing := spec.Component{Argv: []string{"program"}, Env: []string{"PATH=/nowhere"}}
	if path, err := lookPath(missing); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("found %q, error %v, want %v", path, err, exec.ErrNotFound)
	}
}
