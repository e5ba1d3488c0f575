// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/kube/domain"
	"liqo.io/liqo/internal/kube/listener"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/kube/scheme"
	"liqo.io/liqo/internal/kube/version"
	"liqo.io/liqo/internal/offloading/names"
	"liqo.io/liqo/internal/offloading/nameserver"
)

// dnsRole is the name server of the pods that run here for other clusters.
func dnsRole() role.Role {
	return role.Role{Name: "dns", Short: "Answer pods of peers with the names of their own cluster", New: func() *cobra.Command {
		o := dnsOptions{resolvConf: domain.File, last: usualLast}
		return role.Command(&o, config.GetConfig, func(cmd *cobra.Command, cfg *rest.Config) error {
			return runDNS(cmd.Context(), cfg, &o)
		})
	}}
}

type dnsOptions struct {
	address, healthAddress, metricsAddress string
	namespace                              string
	open                                   []string
	// resolvConf is what the kubelet has written for this pod.
	resolvConf string
	// last is how long a process that is asked to end still answers: nodes send it packets until they know that it ends.
	last time.Duration
}

// usualLast is usual for that.
const usualLast = 5 * time.Second

func (o *dnsOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.address, "address", fmt.Sprintf(":%d", nameserver.Port), "address to listen at, over UDP and TCP")
	flags.StringVar(&o.healthAddress, "health-probe-address", ":8081", "address of the probes /healthz and /readyz")
	flags.StringVar(&o.metricsAddress, "metrics-address", "0", "address of the metrics; 0 for none")
	flags.StringVar(&o.namespace, "namespace", role.AuthEnvironment("POD_NAMESPACE", "liqo"), "namespace in which Liqo is installed")
	flags.StringSliceVar(&o.open, "open-namespaces", nil, "namespaces of this cluster in which pods of peers find Services by name although these names "+
		"are under the peer's own domain (NAMESPACE,...)")
}

func (o *dnsOptions) Validate() error {
	if _, port, err := net.SplitHostPort(o.address); err != nil || port == "" {
		return fmt.Errorf("--address %q: want HOST:PORT", o.address)
	}
	for _, one := range o.open {
		if problems := validation.IsDNS1123Label(one); len(problems) > 0 {
			return fmt.Errorf("--open-namespaces: %q is no name of a namespace", one)
		}
	}
	return nil
}

// runDNS serves until ctx ends. It is not ready before it knows the pods of peers, so that those are not refused.
func runDNS(ctx context.Context, cfg *rest.Config, o *dnsOptions) error {
	role.Frugal(ctx)
	log := ctrllog.FromContext(ctx).WithName("dns")
	cluster, err := role.ResolverOf(o.resolvConf)
	if err != nil {
		return err
	}
	kinds, err := scheme.All()
	if err != nil {
		return err
	}
	caches, err := nameserver.CacheOptions()
	if err != nil {
		return err
	}
	mgr, err := kubemanager.New(cfg, kubemanager.Options{
		Scheme: kinds, Namespace: o.namespace, MetricsAddress: o.metricsAddress,
		HealthAddress: o.healthAddress, Cache: caches,
	})
	if err != nil {
		return err
	}
	callers := nameserver.NewCallers()
	watcher, err := nameserver.Watch(ctx, mgr.GetCache(), callers, names.Cluster{Domain: cluster.Domain, Open: o.open, Server: nameserver.Service + "." +
		o.namespace})
	if err != nil {
		return err
	}
	var upstreams []netip.AddrPort
	for _, one := range cluster.Servers {
		upstreams = append(upstreams, netip.AddrPortFrom(one, 53))
	}
	server, err := nameserver.New(nameserver.Options{Callers: callers, Upstreams: upstreams, Log: log})
	if err != nil {
		return err
	}
	err = errors.Join(
		mgr.Add(manager.RunnableFunc(watcher.Run)),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			select {
			case <-watcher.Ready():
			case <-ctx.Done():
				return nil
			}
			datagrams, connections, err := openDNS(ctx, o.address)
			if err != nil {
				return err
			}
			log.Info("starting", "version", version.Version, "address", o.address, "domain", cluster.Domain, "upstreams", upstreams)
			serving, stop := context.WithCancel(context.WithoutCancel(ctx))
			defer stop()
			context.AfterFunc(ctx, func() { time.AfterFunc(o.last, stop) })
			return server.Serve(serving, datagrams, connections)
		})),
		mgr.AddReadyzCheck("pods", func(*http.Request) error { return watcher.Check() }),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// openDNS opens a port for both protocols.
func openDNS(ctx context.Context, address string) (*net.UDPConn, net.Listener, error) {
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("address of the name server: %w", err)
	}
	datagrams, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, nil, fmt.Errorf("port of the name server: %w", err)
	}
	connections, err := listener.Open(ctx, address)
	if err != nil {
		_ = datagrams.Close()
		return nil, nil, fmt.Errorf("port of the name server: %w", err)
	}
	return datagrams, connections, nil
}
