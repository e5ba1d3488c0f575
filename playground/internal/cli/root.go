// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of the playground: one file per group of commands, each of
// which parses, calls package lifecycle or inside, and prints.
//
// It decides nothing about clusters. Its proof is cli_test.go (arguments to exact output)
// and the e2e suite.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"liqo.io/liqo/playground/internal/build"
	"liqo.io/liqo/playground/internal/lifecycle"
	"liqo.io/liqo/playground/internal/progress"
)

// app is what the commands share.
type app struct {
	out, err io.Writer
	source   string
	cache    string
}

// Main runs the command line and returns the exit code.
func Main(args []string, out, errs io.Writer) int {
	// A second interrupt ends the program at once, in case the first one is being handled slowly.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	defer stop()
	root := newRoot(&app{out: out, err: errs})
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		var exit exitError
		if errors.As(err, &exit) {
			return exit.code
		}
		_, _ = fmt.Fprintf(errs, "playground: %v\n", err)
		return 1
	}
	return 0
}

// exitError ends the program without a message, with the exit code of a program that was run for
// the user, or of status.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "playground",
		Short: "Real Kubernetes clusters on one machine, without Docker and without a registry",
		Long: `playground brings up several real, separate Kubernetes clusters on this machine and
removes them without a trace. It needs root and a Linux kernel. It builds everything it
runs from source once and keeps the results.`,
		Example: `  # two clusters, rome and milan, of two nodes each
  playground up quick-start
  export KUBECONFIG=$(playground kubeconfig --path rome milan)
  kubectl --context rome get nodes

  # cut the two apart, and join them again
  playground fault partition rome milan
  playground fault heal rome milan

  playground down`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.PersistentFlags().StringVar(&a.source, "source", "", "directory of the playground's source (default: that of the checkout this program is in)")
	root.PersistentFlags().StringVar(
		&a.cache, "cache", "", "directory that keeps built programs and images (default: liqo-playground in the user's cache directory)",
	)
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"life", "Playground:", []*cobra.Command{a.up(), a.down(), a.status(), a.kubeconfig(), a.add(), a.remove(), a.scenarios()}},
		{"inside", "Inside a cluster:", []*cobra.Command{a.node(), a.component(), a.exec(), a.logs(), a.load()}},
		{"between", "Between clusters:", []*cobra.Command{a.fault(), a.nat(), a.proxy()}},
		{"build", "Building:", []*cobra.Command{a.build(), a.image(), a.assets()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	root.AddCommand(netemCommand())
	return root
}

// netemCommand is the link emulator's process; it runs in the router's namespace.
func netemCommand() *cobra.Command {
	return &cobra.Command{
		Use: lifecycle.NetemCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return lifecycle.RunEmulator(cmd.Context()) },
	}
}

func (a *app) builder() (build.Builder, error) {
	source, cache := a.source, a.cache
	if source == "" {
		found, err := build.FindSource()
		if err != nil {
			return build.Builder{}, err
		}
		source = found
	}
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return build.Builder{}, fmt.Errorf("find the user's cache directory: %w; give one with --cache", err)
		}
		cache = filepath.Join(dir, "liqo-playground")
	}
	cache, err := filepath.Abs(cache)
	if err != nil {
		return build.Builder{}, fmt.Errorf("make %s absolute: %w", a.cache, err)
	}
	return build.Builder{Source: source, Cache: cache, Progress: a.printer()}, nil
}

// playground is for commands that may have to build.
func (a *app) playground() (lifecycle.Playground, error) {
	b, err := a.builder()
	if err != nil {
		return lifecycle.Playground{}, err
	}
	p := a.running()
	p.Builder = b
	return p, nil
}

// running is for commands that need no build.
func (a *app) running() lifecycle.Playground {
	return lifecycle.Playground{Progress: a.printer(), Warn: func(format string, args ...any) {
		_, _ = fmt.Fprintf(a.err, format+"\n", args...)
	}}
}

// printer shows progress on the error stream: the output is for results.
func (a *app) printer() *progress.Printer {
	if f, ok := a.err.(*os.File); ok {
		return progress.New(f)
	}
	return progress.Plain(a.err)
}

func (a *app) printf(format string, args ...any) { _, _ = fmt.Fprintf(a.out, format, args...) }
