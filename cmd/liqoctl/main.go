// SPDX-License-Identifier: Apache-2.0

// Command liqoctl installs Liqo in a cluster, peers the cluster with others, and shows the state of both. All of its code is
// in package cli. Under the name kubectl-liqo it is a plugin of kubectl.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"liqo.io/liqo/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, os.Args)
	stop()
	os.Exit(code)
}
