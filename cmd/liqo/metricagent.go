// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/kube/listener"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/scheme"
	"liqo.io/liqo/internal/offloading/caller"
	agent "liqo.io/liqo/internal/offloading/metricagent"
	"liqo.io/liqo/internal/offloading/serving"
)

// metricAgent serves the usage of a peer's pods to that peer.
func metricAgent() role.Role {
	return role.Role{Name: "metric-agent", Short: "Report to peers what their pods use in this cluster", New: func() *cobra.Command {
		var o metricAgentOptions
		return role.Command(&o, config.GetConfig, func(cmd *cobra.Command, cfg *rest.Config) error {
			return runMetricAgent(cmd.Context(), cfg, &o)
		})
	}}
}

type metricAgentOptions struct {
	port              uint16
	certPath, keyPath string
	insecure          bool
	namespace         string
	healthAddress     string
}

func (o *metricAgentOptions) Register(flags *pflag.FlagSet) {
	flags.Uint16Var(&o.port, "port", 8443, "port of the aggregated API, which the API server calls")
	flags.StringVar(&o.certPath, "cert-path", "", "file with the TLS certificate, in PEM; if empty, the certificate is self-signed")
	flags.StringVar(&o.keyPath, "key-path", "", "file with the key of the TLS certificate, in PEM")
	flags.BoolVar(&o.insecure, "kubelet-insecure-tls", false, "do not verify the certificates of kubelets; an attacker on the path could then take the "+
		"token of this process, which reads metrics")
	flags.StringVar(&o.namespace, "namespace", role.AuthEnvironment("POD_NAMESPACE", "liqo"), "namespace in which Liqo is installed")
	flags.StringVar(&o.healthAddress, "health-probe-address", ":8081", "address of the probes /healthz and /readyz")
}

func (o *metricAgentOptions) Validate() error {
	switch {
	case o.port == 0:
		return errors.New("--port must not be 0: a Service forwards to it")
	case (o.certPath == "") != (o.keyPath == ""):
		return errors.New("--cert-path and --key-path must be set together")
	}
	return nil
}

func runMetricAgent(ctx context.Context, cfg *rest.Config, o *metricAgentOptions) error {
	role.Frugal(ctx)
	kinds, err := scheme.Of(clientgoscheme.AddToScheme)
	if err != nil {
		return err
	}
	caches, err := agent.CacheOptions()
	if err != nil {
		return err
	}
	mgr, err := kubemanager.New(cfg, kubemanager.Options{Scheme: kinds, Namespace: o.namespace, HealthAddress: o.healthAddress, Cache: caches})
	if err != nil {
		return err
	}
	kubelets, err := rest.TransportFor(agent.KubeletConfig(cfg, o.insecure))
	if err != nil {
		return fmt.Errorf("prepare the connection to kubelets: %w", err)
	}
	certificate, keep, err := o.certificate()
	if err != nil {
		return err
	}
	at, err := listener.Open(ctx, ":"+strconv.Itoa(int(o.port)))
	if err != nil {
		return fmt.Errorf("port of the aggregated API: %w", err)
	}
	callers := caller.New(mgr.GetClient())
	served := agent.New(mgr.GetCache(), callers, kubelets)
	err = errors.Join(
		agent.Watch(ctx, mgr.GetCache()),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { keep(ctx); return nil })),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return serving.Serve(ctx, at, certificate, callers.Certified, served) })),
		mgr.AddReadyzCheck("port", healthz.Ping),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// certificate returns the certificate of the files, or a self-signed one, and a function that keeps it valid.
func (o *metricAgentOptions) certificate() (get func(*tls.ClientHelloInfo) (*tls.Certificate, error), keep func(context.Context), err error) {
	if o.certPath != "" {
		files, err := serving.FromFiles(o.certPath, o.keyPath)
		return files.Get, func(context.Context) {}, err
	}
	names := serving.Names{Common: "liqo-metric-agent", DNS: []string{"liqo-metric-agent", "liqo-metric-agent." + o.namespace + ".svc"}}
	if ip := net.ParseIP(os.Getenv("POD_IP")); ip != nil {
		names.IPs = []net.IP{ip}
	}
	own, err := serving.New(names)
	if err != nil {
		return nil, nil, err
	}
	return own.Get, own.Keep, nil
}
