// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// errUsage marks a wrong call: the command shows the help and does nothing.
var errUsage = errors.New("wrong call")

// call holds the inputs and outputs of a command.
type call struct {
	args   []string
	env    environment
	stdout io.Writer
	stderr io.Writer
}

// parse reads flags that may stand before, between and after the positional
// arguments, which it returns.
func (c call) parse(flags *flag.FlagSet) ([]string, error) {
	flags.SetOutput(io.Discard)
	var positional []string
	for args := c.args; ; {
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(c.stdout)
			fmt.Fprintf(c.stdout, "demo %s\n", flags.Name())
			flags.PrintDefaults()
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		if flags.NArg() == 0 {
			return positional, nil
		}
		positional = append(positional, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

// noArguments refuses positional arguments of a command that takes none.
func noArguments(positional []string, err error) error {
	if err == nil && len(positional) > 0 {
		return fmt.Errorf("%w: unexpected argument %q", errUsage, positional[0])
	}
	return err
}

// environment is the pod's identity and configuration.
type environment struct {
	Pod, Node, Namespace, Cluster, IP string
	Backends                          []string // base URLs
}

// readEnvironment reads the variables documented in usage; the pod's host name is its
// name unless a variable overrides it.
func readEnvironment(get func(string) string) environment {
	env := environment{
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
