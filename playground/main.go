// SPDX-License-Identifier: Apache-2.0

// Command playground runs several real Kubernetes clusters on one machine, without Docker
// and without an image registry.
package main

import (
	"fmt"
	"os"

	"liqo.io/liqo/playground/internal/cli"
	"liqo.io/liqo/playground/internal/machine"
	"liqo.io/liqo/playground/internal/topology"
)

func main() { os.Exit(run(os.Args)) }

// run handles the two hidden roles before the command tree is built: process 1 of every
// node is this program, and must not hold memory for commands it does not run.
func run(args []string) int {
	var err error
	switch {
	case len(args) == 3 && args[1] == machine.LaunchCommand:
		err = machine.Launch(args[2], topology.Cgroup)
	case len(args) == 3 && args[1] == machine.InitCommand:
		err = machine.Init()
	default:
		return cli.Main(args[1:], os.Stdout, os.Stderr)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
