// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"liqo.io/liqo/cmd/liqo/role"
	kubemanager "liqo.io/liqo/internal/kube/manager"
	"liqo.io/liqo/internal/network/agent/gateway"
	"liqo.io/liqo/internal/network/agent/gateway/processors"
	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/carrier/transport"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/keyring"
	"liqo.io/liqo/internal/network/report"
)

// forwarding is the file that lets a network namespace forward packets.
const forwarding = "/proc/sys/net/ipv4/ip_forward"

// gatewayMemory is the memory limit of the Go runtime. A container of 128 MiB holds that, and the memory outside the runtime.
const gatewayMemory = 100 << 20

// gatewayRole is the local end of the tunnels to all peers.
func gatewayRole() role.Role {
	return role.Role{Name: "gateway", Short: "Connect the networks of this cluster and its peers with encrypted tunnels", New: func() *cobra.Command {
		var o gatewayOptions
		home := func() (*rest.Config, error) {
			if o.prepare {
				return nil, nil // no API server is needed
			}
			return config.GetConfig()
		}
		return role.Command(&o, home, func(cmd *cobra.Command, cfg *rest.Config) error {
			if o.prepare {
				return prepareGateway(forwarding)
			}
			return runGateway(cmd.Context(), cfg, &o)
		})
	}}
}

type gatewayOptions struct {
	networkOptions
	prepare        bool
	lane           int
	address        string
	listenPort     int
	streamPort     int
	proxyFolder    string
	proxyResolves  bool
	private        bool
	watchPods      bool
	metricsAddress string
}

func (o *gatewayOptions) Register(flags *pflag.FlagSet) {
	o.networkOptions.Register(flags)
	flags.BoolVar(&o.prepare, "prepare", false, "enable forwarding in this network namespace, and exit")
	flags.IntVar(&o.lane, "lane", 0, "number of this gateway; its tunnels lead to the gateways with the same number")
	flags.StringVar(&o.address, "pod-ip", os.Getenv("POD_IP"), "address of this pod")
	flags.IntVar(&o.listenPort, "gateway.listening-port", 5871, "UDP port of the tunnels")
	flags.IntVar(&o.streamPort, "gateway.stream-port", 0, "TCP port at which gateways of peers open tunnels over TLS and WebSockets; 0 for none")
	flags.StringVar(&o.proxyFolder, "gateway.proxy-folder", "", "folder with the files HTTPS_PROXY and NO_PROXY: the HTTP proxy through which tunnels over "+
		"TLS and WebSockets are opened, a URL, with credentials if it wants some; without a folder, the variables of these names count")
	flags.BoolVar(&o.proxyResolves, "gateway.proxy-resolves-names", false, "let the HTTP proxy look up the names of peers' gateways, where this cluster's "+
		"DNS does not know them; a peer can then name hosts in the network of the proxy")
	flags.BoolVar(&o.private, "gateway.private-endpoints", true, "connect to gateways of peers at private addresses")
	flags.BoolVar(&o.watchPods, "watch-pods", false, "watch all pods, for clusters whose nodes have no pod networks of their own (spec.podCIDRs)")
	flags.StringVar(&o.metricsAddress, "metrics-bind-addr", ":0", "address of the metrics; port 0 for none")
	flags.StringVar(&o.healthAddress, "health-probe-address", ":8081", "address of the probes /healthz and /readyz")
}

func (o *gatewayOptions) Validate() error {
	if o.prepare {
		return nil
	}
	address, err := netip.ParseAddr(o.address)
	switch {
	case err != nil || !address.Is4():
		return fmt.Errorf("--pod-ip, or the variable POD_IP, must be the IPv4 address of this pod; it is %q", o.address)
	case o.lane < 0 || o.lane >= ipam.MaxLanes:
		return fmt.Errorf("--lane %d: must be between 0 and %d", o.lane, ipam.MaxLanes-1)
	case o.listenPort < 1 || o.listenPort > 1<<16-1:
		return fmt.Errorf("--gateway.listening-port %d: must be a port", o.listenPort)
	case o.streamPort < 0 || o.streamPort > 1<<16-1:
		return fmt.Errorf("--gateway.stream-port %d: must be a port, or 0", o.streamPort)
	case o.listenPort == int(o.vxlanPort):
		return fmt.Errorf("--gateway.listening-port %d: that is the port of the overlay (--route.vxlan-vtep-port)", o.listenPort)
	}
	return o.networkOptions.Validate()
}

// prepareGateway enables forwarding, which needs rights that the gateway does not have.
func prepareGateway(file string) error {
	const on = "1"
	before, err := os.ReadFile(file)
	if err == nil && string(bytes.TrimSpace(before)) != on {
		err = os.WriteFile(file, []byte(on), 0o644)
	}
	if err != nil {
		return fmt.Errorf("enable forwarding of packets: %w; it needs a privileged init container, or in the pod's securityContext the sysctl "+
			"net.ipv4.ip_forward=1, which the kubelet must allow (--allowed-unsafe-sysctls)", err)
	}
	return nil
}

func runGateway(ctx context.Context, cfg *rest.Config, o *gatewayOptions) (err error) {
	debug.SetMemoryLimit(gatewayMemory)
	log := ctrllog.FromContext(ctx)
	keys := &gateway.Keyring{Read: readGatewayKey}
	hub := carrier.New(carrier.Options{Log: log})
	defer hub.Close()
	opened, err := host.Open(host.Options{PrivateKey: keys.Private, Hub: hub, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	address := netip.MustParseAddr(o.address)
	agent, err := gateway.New(cfg, opened, gateway.Options{
		Namespace: o.namespace, KeysSecret: keyring.SecretName, Lane: o.lane, Node: o.node, Address: address,
		ListenPort: o.listenPort, VXLANPort: o.vxlanPort, MTU: o.mtu, Pods: o.watchPods, Restricted: o.restricted(), Keys: keys, Log: log,
		Hub: hub, StreamPort: o.streamPort, Proxy: transport.ProxyFrom(o.proxyFolder), ProxyResolves: o.proxyResolves, PublicOnly: !o.private,
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return agent.Run(ctx) })
	group.Go(func() error { processors.Adjust(ctx); return nil })
	reports := agent.Handler()
	group.Go(func() error {
		return role.ServeSecurely(ctx, net.JoinHostPort(o.address, strconv.Itoa(report.SecurePort)), reports, keys.Certificate)
	})
	// For port-forwarding, and for controller managers of earlier versions.
	for _, address := range []string{o.address, "127.0.0.1"} {
		group.Go(func() error { return role.Serve(ctx, net.JoinHostPort(address, strconv.Itoa(report.Port)), reports) })
	}
	group.Go(func() error { return role.Serve(ctx, o.healthAddress, agentHealth(agent)) })
	if serves(o.metricsAddress) {
		if err := metrics.Registry.Register(agent); err != nil {
			return fmt.Errorf("register the metrics: %w", err)
		}
		group.Go(func() error { return role.Serve(ctx, o.metricsAddress, kubemanager.Metrics()) })
	}
	return group.Wait()
}

// serves reports whether something is to be served at an address: port 0 means no.
func serves(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port != "0"
}

func readGatewayKey(secret *corev1.Secret, lane int) (gateway.Key, bool, error) {
	all, err := keyring.Keys(secret)
	key, ok := all[lane]
	return gateway.Key{Private: key.Current, Public: key.Public}, ok, err
}
