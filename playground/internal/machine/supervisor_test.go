// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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

// TestReaperMissesNoExit: a process that ends before the reaper has begun to run is collected as well.
func TestReaperMissesNoExit(t *testing.T) {
	it := spec.Component{Name: "short", Argv: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}}
	log, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s := newSupervisor(spec.Machine{Components: []spec.Component{it}}, map[string]*os.File{it.Name: log}, slog.New(slog.DiscardHandler))
	reap := s.reaper()
	ended := make(chan error, 1)
	go func() {
		exit, err := s.run(s.items[it.Name])
		if err == nil && exit.ExitStatus() != 0 {
			err = fmt.Errorf("exit %d", exit.ExitStatus())
		}
		ended <- err
	}()
	for pid := 0; ; time.Sleep(time.Millisecond) {
		if pid = s.statuses()[0].PID; pid != 0 {
			if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); strings.Contains(string(stat), ") Z ") {
				break
			}
		}
	}
	go reap(t.Context())
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the exit is not observed")
	}
}
