// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/pflag"

	"liqo.io/liqo/cmd/liqo/role"
	"liqo.io/liqo/internal/network/hoststate"
)

// networkOptions are the flags that gateways and nodes share: both ends of the overlay must agree.
type networkOptions struct {
	namespace     string
	node          string
	vxlanPort     uint16
	mtu           int
	traffic       string
	healthAddress string
}

// What pods of this cluster exchange packets with peers.
const (
	trafficFull      = "full"
	trafficOffloaded = "offloaded"
)

// restricted: only pods that belong to a peering exchange packets with the peer.
func (o *networkOptions) restricted() bool { return o.traffic == trafficOffloaded }

func (o *networkOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "liqo-namespace", role.AuthEnvironment("POD_NAMESPACE", "liqo"), "namespace in which Liqo is installed")
	flags.StringVar(&o.node, "node-name", role.AuthEnvironment("NODE_NAME", ""), "name of the node that this process runs on")
	flags.Uint16Var(
		&o.vxlanPort, "route.vxlan-vtep-port", hoststate.DefaultVXLANPort,
		"UDP port of the overlay between nodes and gateways; the same on all of them",
	)
	flags.IntVar(&o.mtu, "gateway.mtu", 0, "largest MTU of the tunnels; 0: the MTU of the pod network, less the overhead of encryption")
	flags.StringVar(&o.traffic, "traffic", trafficFull, "which pods exchange packets with a peer: full (all), or offloaded (those that run for it, and "+
		"those of namespaces that are offloaded to it)")
	role.Ignore(flags, role.NoteRunAs, "run-as")
	role.Ignore(flags, role.NoteProbes, "gateway.ping-interval", "gateway.ping-loss-threshold", "gateway.ping-latency-update-interval")
	role.IgnoreSwitch(flags, role.NoteElection, "gateway.leader-elect")
	role.Ignore(flags, role.NoteElection, "gateway.lease-duration", "gateway.renew-deadline", "gateway.retry-period")
	role.Ignore(flags, role.NoteVXLAN, "route.vxlan-vni", "route.vxlan-mtu")
	role.Ignore(flags, role.NoteManager, "manager.pod-cidr", "manager.service-cidr", "manager.reserved-pools", "manager.additional-pools")
}

func (o *networkOptions) Validate() error {
	switch {
	case o.namespace == "":
		return errors.New("--liqo-namespace must not be empty")
	case o.node == "":
		return errors.New("--node-name, or the variable NODE_NAME, must be the node of this process")
	case o.traffic != trafficFull && o.traffic != trafficOffloaded:
		return fmt.Errorf("--traffic %q: want %s or %s", o.traffic, trafficFull, trafficOffloaded)
	case o.vxlanPort == 0:
		return errors.New("--route.vxlan-vtep-port must not be 0")
	case o.mtu != 0 && (o.mtu < 576 || o.mtu > 1<<16-1):
		return fmt.Errorf("--gateway.mtu %d: must be 0, or between 576 and 65535", o.mtu)
	}
	return nil
}

// hostAgent is a role that keeps the network of a host as planned.
type hostAgent interface {
	Ready() bool
	Alive() bool
}

// agentHealth answers the probes of the kubelet. The answer does not depend on the API server: an agent works without it.
func agentHealth(a hostAgent) http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, good func() bool, bad string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if !good() {
				http.Error(w, bad, http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	answer("/healthz", a.Alive, "the loop that configures the host is stuck")
	answer("/readyz", a.Ready, "the host was not configured yet; the log shows why")
	return mux
}
