// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/kube/domain"
	"liqo.io/liqo/internal/network/agent/route"
	"liqo.io/liqo/internal/network/host"
)

const (
	// routeDaemonSet is the name of the DaemonSet in the chart.
	routeDaemonSet = "liqo-route"
	// niceness of a node's agent: a probe that is late because of load would count as lost.
	niceness = -10
)

// routeRole routes the packets of a node to the gateways.
func routeRole() role.Role {
	return role.Role{Name: "route", Short: "Route the packets of one node for peers to the gateways", New: func() *cobra.Command {
		var o routeOptions
		return role.Command(&o, config.GetConfig, func(cmd *cobra.Command, cfg *rest.Config) error {
			return runRoute(cmd.Context(), cfg, &o)
		})
	}}
}

type routeOptions struct{ networkOptions }

func (o *routeOptions) Register(flags *pflag.FlagSet) {
	o.networkOptions.Register(flags)
	flags.StringVar(&o.healthAddress, "health-probe-address", "127.0.0.1:5874", "address of the probes /healthz and /readyz")
	role.Ignore(flags, role.NoteGatewayOnly, "metrics-bind-addr", "gateway.listening-port")
}

func runRoute(ctx context.Context, cfg *rest.Config, o *routeOptions) (err error) {
	role.Frugal(ctx)
	log := ctrllog.FromContext(ctx)
	if err := raisePriority(); err != nil {
		log.V(1).Info("priority not raised", "reason", err.Error())
	}
	opened, err := host.Open(host.Options{Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	agent, err := route.New(cfg, opened, route.Options{
		Namespace: o.namespace, DaemonSet: routeDaemonSet, Node: o.node, VXLANPort: o.vxlanPort, MTU: o.mtu, Restricted: o.restricted(),
		PathMTU: host.PathMTU, Log: log,
		Resolvers: readResolvers,
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return agent.Run(ctx) })
	group.Go(func() error { return role.Serve(ctx, o.healthAddress, agentHealth(agent)) })
	return group.Wait()
}

// readResolvers reads the resolvers of the node, which the kubelet gives the pods of the host's network with the DNS policy Default.
func readResolvers() (string, error) {
	text, err := os.ReadFile(domain.File)
	return string(text), err
}

// raisePriority raises the priority of all threads. A later thread inherits the priority of the thread that creates it.
func raisePriority() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, niceness); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
