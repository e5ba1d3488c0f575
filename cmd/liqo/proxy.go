// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/kube/listener"
	"liqo.io/liqo/internal/kube/version"
	"liqo.io/liqo/internal/peering/auth/endpoint"
	"liqo.io/liqo/internal/peering/proxy"
)

// proxyRole lets peers reach the API server and the authentication service through the tunnel. It needs no API server, and has no rights there.
func proxyRole() role.Role {
	return role.Role{Name: "proxy", Short: "Let peers reach the API server and the authentication service through the tunnel", New: func() *cobra.Command {
		var o proxyOptions
		cmd := &cobra.Command{
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if err := o.Validate(); err != nil {
					return err
				}
				return runProxy(cmd.Context(), &o)
			},
		}
		o.Register(cmd.Flags())
		return cmd
	}}
}

type proxyOptions struct {
	address, healthAddress string
	apiServer, auth        string
	authTLS                bool
	keyPath                string
	namespace              string
}

func (o *proxyOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.address, "address", fmt.Sprintf(":%d", proxy.Port), "address to listen at")
	flags.StringVar(&o.healthAddress, "health-probe-address", ":8081", "address of the probes /healthz and /readyz")
	flags.StringVar(&o.apiServer, "api-server", "kubernetes.default.svc:443", "HOST:PORT of the API server")
	flags.StringVar(&o.auth, "auth", "liqo-auth:443", "HOST:PORT of the authentication service")
	flags.BoolVar(&o.authTLS, "auth-tls", true, "the authentication service speaks TLS; if not, this process does in its place")
	flags.StringVar(&o.keyPath, "key-path", "", "file with the key from which the passes of peers are derived")
	flags.StringVar(&o.namespace, "namespace", role.AuthEnvironment("POD_NAMESPACE", "liqo"), "namespace in which Liqo is installed")
}

func (o *proxyOptions) Validate() error {
	if o.keyPath == "" {
		return errors.New("--key-path must name a file; the chart mounts the Secret " + proxy.KeySecret)
	}
	for flag, text := range map[string]string{"--address": o.address, "--api-server": o.apiServer, "--auth": o.auth} {
		if host, port, err := net.SplitHostPort(text); err != nil || port == "" || host == "" && flag != "--address" {
			return fmt.Errorf("%s %q: want HOST:PORT", flag, text)
		}
	}
	return nil
}

// upstreams are the two destinations, by what peers ask for.
func (o *proxyOptions) upstreams() (map[string]proxy.Upstream, error) {
	auth := proxy.Upstream{Address: o.auth, Share: proxy.AuthShare()}
	if !o.authTLS {
		certificate, err := selfSignedAuth(o.namespace, time.Now())
		if err != nil {
			return nil, err
		}
		auth.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*certificate}}
	}
	return map[string]proxy.Upstream{proxy.APIServer: {Address: o.apiServer}, proxy.Auth: auth}, nil
}

func runProxy(ctx context.Context, o *proxyOptions) error {
	log := ctrllog.FromContext(ctx).WithName("proxy")
	key, err := os.ReadFile(o.keyPath)
	if err != nil {
		return fmt.Errorf("read the key of the proxy: %w", err)
	}
	upstreams, err := o.upstreams()
	if err != nil {
		return err
	}
	served, err := proxy.New(proxy.Options{Upstreams: upstreams, Key: key, Log: log})
	if err != nil {
		return err
	}
	at, err := listener.Open(ctx, o.address)
	if err != nil {
		return err
	}
	log.Info("starting", "version", version.Version, "address", o.address, "apiServer", o.apiServer, "auth", o.auth)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return served.Serve(ctx, at) })
	group.Go(func() error {
		return endpoint.Serve(ctx, endpoint.Drained, endpoint.Health(o.healthAddress, func(context.Context) error { return nil }))
	})
	return group.Wait()
}
