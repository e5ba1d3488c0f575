// SPDX-License-Identifier: Apache-2.0

// Package record keeps the record of the playground that is up: state.json, the lock that lets
// only one command change it, and the names of its machines.
//
// It starts and stops nothing. It records what was requested; package inside asks the machines
// and the API servers for the actual state. Its proof is the e2e suite, which also deletes the
// record.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/fault"
	"liqo.io/liqo/playground/internal/nat"
	"liqo.io/liqo/playground/internal/proxy"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
)

// State is the content of state.json: the record of the playground that is up.
type State struct {
	// Complete is false while the playground is being made.
	Complete bool
	Scenario scenario.Scenario
	// Requested is the scenario given to up, before clusters were added or removed.
	Requested scenario.Scenario
	Faults    fault.State
	NAT       nat.State
	Proxies   []proxy.Proxy
	// Set is the directory of the programs in use.
	Set string
	// KubeconfigDir is where kubeconfigs were written for the user, Kubeconfigs their paths.
	KubeconfigDir string
	Kubeconfigs   []string
	// Settings are the machine's settings before the playground changed them.
	Settings map[string]string
}

// ErrNone: no playground is up.
var ErrNone = errors.New("no playground is up; start one with: playground up")

const stateFile = topology.StateDir + "/state.json"

// Load reads the state, or returns ErrNone.
func Load() (State, error) {
	data, err := os.ReadFile(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, ErrNone
	}
	if err != nil {
		return State{}, fmt.Errorf("read the playground's state: %w", err)
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, fmt.Errorf("read the playground's state: %w; remove what is left with: playground down", err)
	}
	return s, nil
}

// LoadComplete is Load for commands that need a playground which is completely up.
func LoadComplete() (State, topology.Topology, error) {
	s, err := Load()
	if err != nil {
		return State{}, topology.Topology{}, err
	}
	if !s.Complete {
		return State{}, topology.Topology{}, errors.New(
			"the playground is not completely up; wait for the command that makes it, or remove what is left with: playground down",
		)
	}
	t, err := topology.New(s.Scenario)
	return s, t, err
}

// Save replaces the record.
func (s State) Save() error {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return fmt.Errorf("encode the playground's state: %w", err)
	}
	if err := os.MkdirAll(topology.StateDir, 0o755); err != nil {
		return fmt.Errorf("keep the playground's state: %w", err)
	}
	tmp := stateFile + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("keep the playground's state: %w", err)
	}
	if err := os.Rename(tmp, stateFile); err != nil {
		return fmt.Errorf("keep the playground's state: %w", err)
	}
	return nil
}

// Exclusively calls do with the playground that is up while no other command can change it.
func Exclusively(do func(State, topology.Topology) error) error {
	unlock, err := Lock()
	if err != nil {
		return err
	}
	defer unlock()
	state, t, err := LoadComplete()
	if err != nil {
		return err
	}
	return do(state, t)
}

// Cluster returns a cluster of the playground, or an error that names those there are.
func Cluster(t topology.Topology, name string) (topology.Cluster, error) {
	if c, found := t.Cluster(name); found {
		return c, nil
	}
	names := make([]string, 0, len(t.Clusters))
	for _, c := range t.Clusters {
		names = append(names, c.Name)
	}
	return topology.Cluster{}, fmt.Errorf("no cluster %q; there are: %s", name, strings.Join(names, ", "))
}

const lockFile = topology.RuntimeDir + "/lock"

// Lock makes this process the only one that changes the playground. It does not wait: a
// second command at the same time is a mistake, which the user must learn of.
func Lock() (unlock func(), err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("not root: the playground makes namespaces, cgroups and mounts; run with sudo")
	}
	for {
		if err := os.MkdirAll(topology.RuntimeDir, 0o700); err != nil {
			return nil, fmt.Errorf("take the playground's lock: %w", err)
		}
		f, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("take the playground's lock: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			owner, _ := os.ReadFile(lockFile)
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("another playground command is at work (%s); wait until it ends", strings.TrimSpace(string(owner)))
			}
			return nil, fmt.Errorf("take the playground's lock: %w", err)
		}
		if !current(f) { // its owner removed it between open and lock
			_ = f.Close()
			continue
		}
		_ = f.Truncate(0)
		_, _ = fmt.Fprintf(f, "process %d: %s\n", os.Getpid(), strings.Join(os.Args[1:], " "))
		return func() {
			// Removed before it is unlocked: a process that has opened it notices that (current).
			_ = os.Remove(lockFile)
			_ = os.Remove(topology.RuntimeDir) // only if it is empty
			_ = f.Close()
		}, nil
	}
}

// current reports whether an open file is still the one at its path.
func current(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(f.Name())
	return err == nil && os.SameFile(mine, there)
}

// Finish writes the kubeconfigs and the record that everything is up.
func (s *State) Finish(t topology.Topology) error {
	for _, c := range t.Clusters {
		if err := s.WriteKubeconfig(c); err != nil {
			return err
		}
	}
	s.Complete = true
	return s.Save()
}

// WriteKubeconfig copies the administrator's kubeconfig to where the user wants it.
func (s *State) WriteKubeconfig(c topology.Cluster) error {
	data, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read the kubeconfig of %s: %w", c.Name, err)
	}
	if err := os.MkdirAll(s.KubeconfigDir, 0o755); err != nil {
		return fmt.Errorf("create kubeconfig directory: %w", err)
	}
	to := s.Kubeconfig(c.Name)
	if err := os.WriteFile(to, data, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", c.Name, err)
	}
	if !slices.Contains(s.Kubeconfigs, to) {
		s.Kubeconfigs = append(s.Kubeconfigs, to)
	}
	return nil
}

// Kubeconfig is the path of a cluster's kubeconfig for the user.
func (s State) Kubeconfig(cluster string) string {
	return filepath.Join(s.KubeconfigDir, cluster+".yaml")
}
