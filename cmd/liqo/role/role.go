// SPDX-License-Identifier: Apache-2.0

// Package role is what the roles of liqo share: how options become a command, how probes and metrics are served, documented flags
// that have no effect, and the settings of the Go runtime. It must not know the roles. Its proof are runtime_test.go and the tests
// of cmd/liqo.
package role

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/listener"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/version"
)

// AuthEnvironment is a variable of the environment, or a value if it is empty.
func AuthEnvironment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// Role is one process. Several pods may run the same role, but a process runs only one.
type Role struct {
	Name, Short string
	New         func() *cobra.Command
}

// Options are the flags of a role.
type Options interface {
	Register(flags *pflag.FlagSet)
	Validate() error
}

// Named returns a copy of cfg that names the role to the API server, in audit logs and in the managed fields of what it writes.
func Named(cfg *rest.Config, role string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = "liqo-" + role + "/" + version.Version
	}
	return cfg
}

// Command returns the command of a role that uses the API server of its own cluster. home returns how to reach it, or nil if the role needs none
// with these flags.
func Command(o Options, home func() (*rest.Config, error), run func(*cobra.Command, *rest.Config) error) *cobra.Command {
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
				cfg = kubemanager.WaitWatches(Named(cfg, cmd.Name()))
			}
			return run(cmd, cfg)
		},
	}
	o.Register(cmd.Flags())
	return cmd
}

// Serve serves probes, metrics or reports at an address until ctx ends. What it answers may last.
func Serve(ctx context.Context, address string, handler http.Handler) error {
	return ServeSecurely(ctx, address, handler, nil)
}

// ServeSecurely does it over TLS, if it gets a certificate.
func ServeSecurely(ctx context.Context, address string, handler http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	limits := listener.Small()
	limits.Write = 0
	port := listener.Port{Limits: limits, Handler: handler, Log: ctrllog.FromContext(ctx)}
	if certificate != nil {
		port.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate}
	}
	server, err := listener.Listen(ctx, address, port)
	if err != nil {
		return err
	}
	return server.Serve(ctx)
}
