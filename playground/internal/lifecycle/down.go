// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/host"
	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/network"
	"liqo.io/liqo/playground/internal/record"
	"liqo.io/liqo/playground/internal/topology"
)

// killLimit bounds the wait for processes that have received SIGKILL.
const killLimit = 20 * time.Second

// Down removes everything of a playground: processes, cgroups, namespaces, links, mounts, and
// files outside the cache. It needs no record. found is false if nothing was there.
func (p Playground) Down() (found bool, err error) {
	unlock, err := record.Lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	left, err := leftovers()
	if err != nil {
		return false, err
	}
	if len(left) == 0 {
		return false, nil
	}
	return true, p.clean()
}

// clean is Down without the lock. Processes go first: they
// use all the rest.
func (p Playground) clean() error {
	state, stateErr := record.Load()
	step := p.Progress.Step("take everything down")
	err := remove(state)
	step.End(err)
	if err == nil && stateErr != nil {
		p.Warn("the machine's settings (inotify and key limits, vm.overcommit_memory, kernel.panic) stay as the playground had them: the record "+
			"of the earlier ones is lost (%v)", stateErr)
	}
	return err
}

func remove(state record.State) error {
	if err := machine.KillGroup(topology.Cgroup, killLimit); err != nil {
		return err
	}
	if err := network.Teardown(); err != nil {
		return err
	}
	if err := host.RestoreSettings(state.Settings); err != nil {
		return err
	}
	for _, path := range state.Kubeconfigs {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove kubeconfig: %w", err)
		}
	}
	if state.KubeconfigDir != "" {
		_ = os.Remove(state.KubeconfigDir) // only if it is empty now
	}
	if err := removeTree(topology.StateDir); err != nil {
		return err
	}
	sockets, err := filepath.Glob(filepath.Join(topology.RuntimeDir, "*.sock"))
	if err != nil {
		return fmt.Errorf("list control sockets: %w", err)
	}
	for _, socket := range sockets {
		if err := os.Remove(socket); err != nil {
			return fmt.Errorf("remove control socket: %w", err)
		}
	}
	return nil
}

// removeTree removes files, but never through a mount: a node's root holds the host's /usr.
func removeTree(dir string) error {
	mounts, err := machine.MountsBelow(dir)
	if err != nil {
		return err
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(mounts[i], unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", mounts[i], err)
		}
	}
	if mounts, err = machine.MountsBelow(dir); err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("still mounted below %s: %v; unmount them by hand, then run down again", dir, mounts)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	return nil
}
