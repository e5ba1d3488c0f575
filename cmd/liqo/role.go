// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/listener"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/version"
)

func authEnvironment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// role is one process. Several pods may run the same role, but a process runs only one.
type role struct {
	name, short string
	new         func() *cobra.Command
}

// options are the flags of a role.
type options interface {
	Register(flags *pflag.FlagSet)
	Validate() error
}

// named returns a copy of cfg that names the role to the API server, in audit logs and in the managed fields of what it writes.
func named(cfg *rest.Config, role string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = "liqo-" + role + "/" + version.Version
	}
	return cfg
}

// command returns the command of a role that uses the API server of its own cluster. home returns how to reach it, or nil if the role needs none
// with these flags.
func command(o options, home func() (*rest.Config, error), run func(*cobra.Command, *rest.Config) error) *cobra.Command {
	cmd := &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reportIgnored(cmd.Flags(), ctrllog.FromContext(cmd.Context()))
			if err := o.Validate(); err != nil {
				return err
			}
			cfg, err := home()
			if err != nil {
				return err
			}
			if cfg != nil {
				cfg = kubemanager.WaitWatches(named(cfg, cmd.Name()))
			}
			return run(cmd, cfg)
		},
	}
	o.Register(cmd.Flags())
	return cmd
}

// serve serves probes, metrics or reports at an address until ctx ends. What it answers may last.
func serve(ctx context.Context, address string, handler http.Handler) error {
	return serveSecurely(ctx, address, handler, nil)
}

// serveSecurely does it over TLS, if it gets a certificate.
func serveSecurely(ctx context.Context, address string, handler http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	limits := listener.Small()
	limits.Write = 0
	port := listener.Port{Limits: limits, Handler: handler, Log: log.FromContext(ctx)}
	if certificate != nil {
		port.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate}
	}
	server, err := listener.Listen(ctx, address, port)
	if err != nil {
		return err
	}
	return server.Serve(ctx)
}
