// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// defaults are those of the documentation, by role and flag. docs/differences.md names the flags that have others.
var defaults = map[string]map[string]string{
	"controller-manager": {
		"webhook-port": "9443", "metrics-address": ":8080", "health-probe-address": ":8081", "enable-resource-enforcement": "false",
		"resource-validator-refresh-interval": "5m0s", "enable-leader-election": "false", "resync-period": "10h0m0s", "liqo-namespace": "liqo",
		"shadow-pod-ctrl-workers": "10", "shadow-endpointslice-ctrl-workers": "10", "foreign-cluster-ping-interval": "15s", "foreign-cluster-ping-timeout": "5s",
		"auto-join-discovered-clusters": "true", "resource-plugin-address": "", "resource-sharing-percentage": "50", "enable-incoming-peering": "true",
		"kubelet-metrics-enabled": "false", "storage-namespace": "liqo-storage",
	},
	"virtual-kubelet": {
		"disable-ip-reflection": "false", "certificate-type": "kubelet", "listen-port": "10250", "node-lease-duration": "40s", "node-ping-interval": "10s",
		"node-ping-timeout": "1s", "enable-apiserver-support": "false", "metrics-address": ":8080", "pod-reflection-workers": "10", "service-reflection-workers": "3",
		"endpointslice-reflection-workers": "10", "ingress-reflection-workers": "3", "configmap-reflection-workers": "3", "secret-reflection-workers": "3",
		"service-account-reflection-workers": "3", "persistentvolumeclaim-reflection-workers": "3",
	},
	"auth":         {"address": ":5000", "enable-authentication": "true"},
	"gateway":      {"metrics-bind-addr": ":0", "gateway.listening-port": "5871"},
	"route":        {"route.vxlan-vtep-port": "4879"},
	"metric-agent": {"port": "8443"},
	"cleanup":      {"timeout": "5m0s"},
}

// otherDefaults are those of flags whose documented default docs/differences.md names as another one.
var otherDefaults = map[string]map[string]string{
	"controller-manager": {"disable-internal-network": "true", "foreign-cluster-workers": "10"},
	"virtual-kubelet":    {"node-check-network": "false"},
}

// TestDocumentedDefaults: flags have their documented defaults, or those that the differences name.
func TestDocumentedDefaults(t *testing.T) {
	for _, role := range roles() {
		flags := role.New().Flags()
		for _, all := range []map[string]string{defaults[role.Name], otherDefaults[role.Name]} {
			for name, want := range all {
				if flag := flags.Lookup(name); flag == nil || flag.DefValue != want {
					t.Errorf("%s --%s: %+v, want the default %q", role.Name, name, flag, want)
				}
			}
		}
	}
}
