// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"
	"liqo.io/liqo/cmd/liqo/manager"
)

// documented are the flags of the documentation, by role. An entry "NAME" has a value, "NAME=" is Boolean; the text after the colon is in the
// note of a flag that has no effect.
var documented = map[string][]string{
	"controller-manager": {
		"webhook-port", "metrics-address", "health-probe-address", "enable-resource-enforcement=", "resource-validator-refresh-interval",
		"enable-leader-election=", "resync-period", "cluster-id", "cluster-name", "liqo-namespace",
		"foreign-cluster-workers", "shadow-pod-ctrl-workers", "shadow-endpointslice-ctrl-workers", "disable-internal-network=",
		"foreign-cluster-ping-interval", "foreign-cluster-ping-timeout", "auto-join-discovered-clusters=", "resource-plugin-address",
		"cluster-labels", "resource-sharing-percentage", "enable-incoming-peering=", "offer-disable-auto-accept=: later version",
		"offer-update-threshold-percentage", "kubelet-image", "kubelet-extra-annotations", "kubelet-extra-labels", "kubelet-extra-args",
		"kubelet-cpu-requests", "kubelet-cpu-limits", "kubelet-ram-requests", "kubelet-ram-limits", "kubelet-metrics-address",
		"kubelet-metrics-enabled=", "node-extra-annotations", "node-extra-labels", "kubelet-ipam-server: none will come",
		"enable-storage=", "virtual-storage-class-name: in its parameters", "real-storage-class-name",
		"storage-namespace", "enable-node-failure-controller=: later version",
	},
	"virtual-kubelet": {
		"home-kubeconfig", "nodename", "tenant-namespace", "resync-period: watches report every change", "home-cluster-id", "home-cluster-name",
		"foreign-cluster-id", "foreign-cluster-name", "ipam-server: none will come", "disable-ip-reflection=", "node-ip", "certificate-type",
		"listen-port", "enable-profiling=: no profiles", "pod-reflection-workers", "service-reflection-workers", "endpointslice-reflection-workers",
		"ingress-reflection-workers", "configmap-reflection-workers", "secret-reflection-workers", "service-account-reflection-workers",
		"persistentvolumeclaim-reflection-workers", "node-lease-duration", "node-ping-interval", "node-ping-timeout",
		"node-check-network=", "node-extra-annotations", "node-extra-labels", "enable-apiserver-support=", "enable-storage=",
		"virtual-storage-class-name: in its parameters", "remote-real-storage-class-name: in its parameters", "metrics-enabled=", "metrics-address",
		"home-api-server-host", "home-api-server-port",
	},
	"auth": {
		"namespace", "resync-period: caches nothing", "address", "cert-path", "key-path", "enable-tls=", "enable-authentication=",
		"advertise-api-server-address", "advertise-api-server-trusted-ca=", "aws-access-key-id: none will come",
		"aws-secret-access-key: none will come", "aws-region: none will come", "aws-cluster-name: none will come",
	},
	"gateway": append([]string{
		"metrics-bind-addr", "gateway.mtu", "gateway.listening-port", "gateway.ping-latency-update-interval: fixed pace",
		"gateway.ping-loss-threshold: fixed pace", "gateway.ping-interval: fixed pace", "route.vxlan-vtep-port",
	}, liqonet...),
	"route": append([]string{
		"metrics-bind-addr: flag of `liqo gateway`", "gateway.mtu", "gateway.listening-port: flag of `liqo gateway`",
		"gateway.ping-latency-update-interval: fixed pace", "gateway.ping-loss-threshold: fixed pace", "gateway.ping-interval: fixed pace",
		"route.vxlan-vtep-port",
	}, liqonet...),
	"metric-agent": {"key-path", "cert-path", "port"},
}

// liqonet are flags that the documentation gives to one program with the roles gateway, route and network manager.
var liqonet = []string{
	"run-as: first argument", "gateway.leader-elect=: elect a leader", "gateway.lease-duration: elect a leader",
	"gateway.renew-deadline: elect a leader", "gateway.retry-period: elect a leader", "route.vxlan-vni: chooses this number",
	"route.vxlan-mtu: chooses this number", "manager.pod-cidr: controller-manager", "manager.service-cidr: controller-manager",
	"manager.reserved-pools: controller-manager", "manager.additional-pools: controller-manager",
}

// TestDocumentedFlags: a process accepts every documented flag, with and without "=". One without effect is answered with one line of the log, which
// names the flag and the reason; the others are in the help.
func TestDocumentedFlags(t *testing.T) {
	for _, name := range []string{"CLUSTER_ID", "CLUSTER_NAME", "POD_IP", "NODE_NAME"} {
		t.Setenv(name, "") // so that the process ends before it connects to anything
	}
	for _, role := range roles() {
		for _, entry := range documented[role.Name] {
			name, note, ignored := strings.Cut(entry, ": ")
			name, isSwitch := strings.CutSuffix(name, "=")
			flag := role.New().Flags().Lookup(name)
			switch {
			case flag == nil:
				t.Errorf("%s: no flag --%s", role.Name, name)
				continue
			case (flag.NoOptDefVal != "") != isSwitch:
				t.Errorf("%s --%s: needs no value: %t, want %t", role.Name, name, flag.NoOptDefVal != "", isSwitch)
			case flag.Hidden != ignored || flag.Usage == "":
				t.Errorf("%s --%s: in the help: %t, as %q", role.Name, name, !flag.Hidden, flag.Usage)
			}
			if !ignored {
				continue
			}
			forms := [][]string{{"--" + name, "10h"}, {"--" + name + "=10h"}}
			if isSwitch {
				forms = [][]string{{"--" + name}, {"--" + name + "=true"}}
			}
			for _, arguments := range forms {
				var lines []string
				log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
				program := program()
				program.SetArgs(append([]string{role.Name}, arguments...))
				var output bytes.Buffer
				program.SetOut(&output)
				program.SetErr(&output)
				err := program.ExecuteContext(logr.NewContext(t.Context(), log))
				if err == nil || strings.Contains(err.Error(), "unknown") || output.Len() > 0 {
					t.Errorf("%s %v: %v, printed %q", role.Name, arguments, err, output.String())
				}
				if len(lines) != 1 || !strings.Contains(lines[0], `"flag"="--`+name+`"`) || !strings.Contains(lines[0], note) {
					t.Errorf("%s %v: logged %q, want one line with %q", role.Name, arguments, lines, note)
				}
			}
		}
	}
}

// TestResyncPeriod: the flag reaches the caches of the controller manager.
func TestResyncPeriod(t *testing.T) {
	t.Setenv("CLUSTER_ID", "11111111-2222-4333-8444-555555555555")
	t.Setenv("CLUSTER_NAME", "milan")
	for value, valid := range map[string]bool{"10h": true, "5m": true, "0": false} {
		var o manager.Options
		flags := pflag.NewFlagSet("controller-manager", pflag.ContinueOnError)
		o.Register(flags)
		if err := flags.Parse([]string{"--resync-period", value, "--kubelet-image=liqo:1"}); err != nil {
			t.Fatal(err)
		}
		if err := o.Validate(); (err == nil) != valid {
			t.Errorf("--resync-period %s: %v", value, err)
		}
		if period := o.Caches().SyncPeriod; period == nil || *period != o.ResyncPeriod {
			t.Errorf("--resync-period %s: the caches have %v", value, period)
		}
	}
}

// TestLeaseName: users find the leader of the controller managers by this documented name.
func TestLeaseName(t *testing.T) {
	if manager.LeaseName != "66cf253f.ctrlmgr.liqo.io" {
		t.Errorf("the Lease is %s", manager.LeaseName)
	}
}
