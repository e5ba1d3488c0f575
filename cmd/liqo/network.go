// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/pflag"

	"liqo.io/liqo/internal/network/plan"
)

// networkOptions are the flags that gateways and nodes share: both ends of the overlay must agree.
type networkOptions struct {
	namespace     string
	node          string
	vxlanPort     uint16
	mtu           int
	healthAddress string
}

// Register adds the flags.
func (o *networkOptions) Register(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "liqo-namespace", authEnvironment("POD_NAMESPACE", "liqo"), "namespace in which Liqo is installed")
	flags.StringVar(&o.node, "node-name", authEnvironment("NODE_NAME", ""), "name of the node that this process runs on")
	flags.Uint16Var(&o.vxlanPort, "route.vxlan-vtep-port", plan.DefaultVXLANPort, "UDP port of the overlay between nodes and gateways; the same on all of them")
	flags.IntVar(&o.mtu, "gateway.mtu", 0, "largest MTU of the tunnels; 0: what the network of the pods carries, less what encryption takes")
	ignore(flags, noteRunAs, "run-as")
	ignore(flags, noteProbes, "gateway.ping-interval", "gateway.ping-loss-threshold", "gateway.ping-latency-update-interval")
	ignoreSwitch(flags, noteElection, "gateway.leader-elect")
	ignore(flags, noteElection, "gateway.lease-duration", "gateway.renew-deadline", "gateway.retry-period")
	ignore(flags, noteVXLAN, "route.vxlan-vni", "route.vxlan-mtu")
	ignore(flags, noteManager, "manager.pod-cidr", "manager.service-cidr", "manager.reserved-pools", "manager.additional-pools")
}

// Validate refuses what cannot work.
func (o *networkOptions) Validate() error {
	switch {
	case o.namespace == "":
		return errors.New("--liqo-namespace must not be empty")
	case o.node == "":
		return errors.New("--node-name, or the variable NODE_NAME, must say on which node this process runs")
	case o.vxlanPort == 0:
		return errors.New("--route.vxlan-vtep-port must not be 0")
	case o.mtu != 0 && (o.mtu < 576 || o.mtu > 1<<16-1):
		return fmt.Errorf("--gateway.mtu %d: must be 0, or between 576 and 65535", o.mtu)
	}
	return nil
}

// agentOf is a role that keeps a host.
type agentOf interface {
	Ready() bool
	Alive() bool
}

// agentHealth answers probes of the kubelet. What it says does not depend on the API server: an agent without one still does its work.
func agentHealth(a agentOf) http.Handler {
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
	answer("/healthz", a.Alive, "the loop that keeps the host is stuck")
	answer("/readyz", a.Ready, "the host was not brought to a plan yet; the log says why")
	return mux
}
