// SPDX-License-Identifier: Apache-2.0

// Package command is how a role of the demo is called: its arguments, its outputs, and the identity of its pod. It must not know
// the roles. Proof: main_test.go of the demo.
package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// ErrUsage marks a wrong call: the command shows the help and does nothing.
var ErrUsage = errors.New("wrong call")

// Call holds the inputs and outputs of a command.
type Call struct {
	Args   []string
	Env    Environment
	Stdout io.Writer
	Stderr io.Writer
}

// Parse reads flags that may stand before, between and after the positional
// arguments, which it returns.
func (c Call) Parse(flags *flag.FlagSet) ([]string, error) {
	flags.SetOutput(io.Discard)
	var positional []string
	for args := c.Args; ; {
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(c.Stdout)
			fmt.Fprintf(c.Stdout, "demo %s\n", flags.Name())
			flags.PrintDefaults()
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUsage, err)
		}
		if flags.NArg() == 0 {
			return positional, nil
		}
		positional = append(positional, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

// NoArguments refuses positional arguments of a command that takes none.
func NoArguments(positional []string, err error) error {
	if err == nil && len(positional) > 0 {
		return fmt.Errorf("%w: unexpected argument %q", ErrUsage, positional[0])
	}
	return err
}

// Environment is the pod's identity and configuration.
type Environment struct {
	Pod, Node, Namespace, Cluster, IP string
	Backends                          []string // base URLs
}

// ReadEnvironment reads the variables documented in usage; the pod's host name is its
// name unless a variable overrides it.
func ReadEnvironment(get func(string) string) Environment {
	env := Environment{
		Pod: get("POD_NAME"), Node: get("NODE_NAME"), Namespace: get("POD_NAMESPACE"),
		Cluster: get("CLUSTER_NAME"), IP: get("POD_IP"),
	}
	if env.Pod == "" {
		// Without a host name the page shows an empty pod name, which is the truth.
		env.Pod, _ = os.Hostname()
	}
	env.Backends = strings.FieldsFunc(get("BACKEND_URLS"), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	return env
}
