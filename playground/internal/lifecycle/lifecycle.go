// SPDX-License-Identifier: Apache-2.0

// Package lifecycle executes the commands of a user: bring clusters up, take them down, change
// one while the others run.
//
// It joins the packages that decide (scenario, topology, cluster, fault) with those that
// act (network, machine, build, host), and writes the record (package record). Package cli
// handles input and output. Its proof is the e2e suite.
package lifecycle

import (
	"fmt"
	"path/filepath"

	"liqo.io/liqo/playground/internal/build"
	"liqo.io/liqo/playground/internal/progress"
	"liqo.io/liqo/playground/internal/topology"
)

// Playground is the one playground of a machine.
type Playground struct {
	Builder  build.Builder
	Progress *progress.Printer
	// Warn reports to the user what is not a failure.
	Warn func(format string, args ...any)
}

// leftovers lists what is left on this machine of any playground.
func leftovers() ([]string, error) {
	var found []string
	for _, pattern := range []string{
		filepath.Join(topology.NetNSDir, topology.Prefix+"*"),
		filepath.Join("/sys/class/net", topology.HostLink),
		filepath.Join("/sys/fs/cgroup/*", topology.Cgroup),
		filepath.Join("/sys/fs/cgroup", topology.Cgroup),
		topology.StateDir,
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("look for leftovers: %w", err)
		}
		found = append(found, matches...)
	}
	return found, nil
}
