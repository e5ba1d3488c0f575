// SPDX-License-Identifier: Apache-2.0

// Command demo is the program of the demo image: a web page and JSON API that name
// the pod, node and cluster that answered, a load generator and a probe client that read
// those answers, and the smallest possible admission webhook and aggregated API server
// for the playground's end-to-end tests. It uses only the standard library, keeps no
// state, and must know nothing of the product: everything it shows comes from
// environment variables or from its connections. Proof: the tests of each file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"liqo.io/liqo/playground/demo/command"
)

const usage = `demo shows, loads and probes connections between pods, nodes and clusters.

  demo serve      [--listen :8080] [--udp :8081] [--drain 3s]   web page, JSON API, UDP echo
  demo load       --url URL [--rate 50] [--duration 10s]        load generator
  demo probe      tcp|http|udp|dns TARGET [--count 4]           probe client
  demo webhook    --tls-cert FILE --tls-key FILE                mutating admission webhook
  demo apiserver  --tls-cert FILE --tls-key FILE                aggregated API demo.liqo.io/v1

Every command has --help. Examples:

  demo serve --listen :8080
  demo load --url http://web.default.svc/api/info --rate 100 --duration 30s
  demo probe tcp 10.210.1.200:80 --count 10 --interval 100ms --require all -o json
  demo probe dns web.default.svc.cluster.local
  demo webhook --self-signed webhook.default.svc

serve reads POD_NAME, NODE_NAME, POD_NAMESPACE, POD_IP, CLUSTER_NAME, and BACKEND_URLS
(comma separated URLs of other demo services, whose answers it also shows).
`

// Exit codes. A probe with an unexpected result is no wrong call.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// errNotMet marks a finished load or probe with a result that is not the required one.
var errNotMet = errors.New("result is not as required")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	// A second signal ends the process at once, also while it drains.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, command.Call{Args: os.Args[1:], Env: command.ReadEnvironment(os.Getenv), Stdout: os.Stdout, Stderr: os.Stderr}))
}

// run runs one command and returns the exit code.
func run(ctx context.Context, c command.Call) int {
	if len(c.Args) == 0 {
		fmt.Fprint(c.Stderr, usage)
		return exitUsage
	}
	commands := map[string]func(context.Context, command.Call) error{
		"serve": serve, "load": load, "probe": probe, "webhook": webhook, "apiserver": apiserver,
	}
	name := c.Args[0]
	role, ok := commands[name]
	if !ok {
		if name == "help" || name == "--help" || name == "-h" {
			fmt.Fprint(c.Stdout, usage)
			return exitOK
		}
		fmt.Fprintf(c.Stderr, "demo: unknown command %q\n\n%s", name, usage)
		return exitUsage
	}
	c.Args = c.Args[1:]
	err := role(ctx, c)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, command.ErrUsage):
		fmt.Fprintf(c.Stderr, "demo %s: %v; see: demo %s --help\n", name, err, name)
		return exitUsage
	default:
		fmt.Fprintf(c.Stderr, "demo %s: %v\n", name, err)
		return exitFailed
	}
}
