// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// rights compares the rights that were used in this run with those granted: what was never used is too much.
func rights(t *testing.T) {
	clusters.NeedsPlayground(t, "audit logs")
	used := map[string]bool{} // role, group, resource, verb
	for _, c := range both() {
		for _, call := range c.Calls(t, time.Time{}, time.Time{}) {
			key := strings.Join([]string{call.Account(), call.ObjectRef.APIGroup, call.Resource()}, " ") + " "
			used[key+call.Verb] = true
			switch call.Verb {
			case "watch": // starts with a list, unless the server streams it
				used[key+"list"] = true
			case "patch": // a server-side apply of an object that does not exist requires create as well
				used[key+"create"] = true
			}
			if call.ResponseStatus.Code == 403 {
				t.Logf("%s: refused: %s", c.Name, call)
			}
		}
	}
	identities := map[string]string{
		"controller-manager": "liqo-controller-manager", "auth": "liqo-auth", "virtual-kubelet": "virtual-kubelet", "gateway": "liqo-gateway",
		"route": "liqo-route", "metric-agent": "liqo-metric-agent",
		"dns": "liqo-dns",
	}
	for role, identity := range identities {
		text, err := os.ReadFile("../../deployments/liqo/files/rbac-" + role + ".yaml")
		if err != nil {
			t.Error(err)
			continue
		}
		for document := range strings.SplitSeq(string(text), "\n---") {
			var granted rbacv1.ClusterRole
			if err := yaml.Unmarshal([]byte(document), &granted); err != nil {
				t.Fatal(err)
			}
			for _, rule := range granted.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							key := strings.Join([]string{identity, group, resource, verb}, " ")
							if !used[key] && unused[key] == "" {
								t.Errorf("granted but never used in this run: %s; take it away, or give the reason in unused", key)
							}
						}
					}
				}
			}
		}
	}
}

// Reasons of several rights.
const (
	noClaim       = "no claim of a class of Liqo in this run: test/offload has them, and the tests of package storage have no other rights"
	noMove        = "no volume moves in this run: TestMoveVolume of test/offload"
	notKept       = "only when offloading ends in a remote namespace that is kept for its claims: TestDataStays of package remotenamespace"
	noRemoteClaim = "no claim is offloaded in this run: the tests of package claims have no other rights"
)

// unused are rights that this run need not use, each with the reason.
var unused = map[string]string{
	"liqo-auth  nodes list": "only where the chart was installed without apiServer.address, which liqoctl always finds out",
	"liqo-controller-manager rbac.authorization.k8s.io clusterroles bind": "is checked when a role is bound, and is no call",
	"liqo-controller-manager rbac.authorization.k8s.io roles bind":        "is checked when a role is bound, and is no call",
	"liqo-controller-manager certificates.k8s.io signers approve":         "is looked at when a request is approved, and is no call",
	"liqo-metric-agent  nodes/metrics get":                                "kubelets look at it, when they are asked",
	"liqo-metric-agent authorization.k8s.io subjectaccessreviews create": "only when a peer with pods here asks: TestScrape " +
		"of package metricagent",
	"liqo-controller-manager  pods/eviction create": "no pod runs on the virtual node in this run; " +
		"TestDrain of package virtualnode uses it",
	"liqo-controller-manager  pods delete": "only after the drain deadline, and for pods of a " +
		"virtual kubelet whose Deployment is gone",
	"liqo-controller-manager  events create":                    "leader election speaks of itself",
	"liqo-controller-manager  events patch":                     "leader election speaks of itself",
	"liqo-controller-manager events.k8s.io events create":       "only when something went wrong",
	"liqo-controller-manager events.k8s.io events patch":        "only when the same went wrong again",
	"liqo-controller-manager coordination.k8s.io leases get":    "leader election, with several replicas",
	"liqo-controller-manager coordination.k8s.io leases create": "leader election, with several replicas",
	"liqo-controller-manager coordination.k8s.io leases update": "leader election, with several replicas",
	"liqo-controller-manager  pods get": "asked before a pod that is missing is made " +
		"again: TestShadowPod of package shadowpod, and test/offload",
	"liqo-controller-manager  pods patch":                     "only when an offloaded pod is changed: test/offload does",
	"liqo-controller-manager  pods/ephemeralcontainers patch": "only for kubectl debug: test/offload does",
	"liqo-controller-manager virtualkubelet.liqo.io shadowendpointslices get": "only for a slice whose ShadowEndpointSlice went " +
		"while no controller ran: TestShadowEndpointSlice of package shadowslice",
	"liqo-controller-manager discovery.k8s.io endpointslices delete":                        "the same; otherwise Kubernetes takes it with its owner",
	"liqo-controller-manager virtualkubelet.liqo.io shadowpods/finalizers update":           "is looked at when an owner is named, and is no call",
	"liqo-controller-manager virtualkubelet.liqo.io shadowendpointslices/finalizers update": "is looked at when an owner is named, and is no call",
	"virtual-kubelet net.liqo.io ipmappings patch": "only when the ports of an endpoint outside the " +
		"pod network change: TestMappings of package translator",
	"virtual-kubelet net.liqo.io ipmappings delete": "only when the last such endpoint is gone: " +
		"TestMappings of package translator",
	"liqo-controller-manager  resourcequotas create": "only when an administrator sets peerQuota: " +
		"TestAttackH5 of package remotenamespace does",
	"liqo-controller-manager  resourcequotas patch":  "the same",
	"liqo-controller-manager  resourcequotas delete": "only when none is set any more: the same",
	"liqo-controller-manager  limitranges delete":    "the same with peerContainerLimits",
	"virtual-kubelet  pods patch": "only when a provider is silent: the tests of " +
		"tolerations in package reflection",
	"liqo-controller-manager  secrets update": "the keys of gateways change on request: test/network does",
	"liqo-controller-manager net.liqo.io ipmappings/status update": "no address is mapped in this run; TestMappings " +
		"of package network does",
	"liqo-controller-manager net.liqo.io networkconfigs get": "only before a copy is deleted whose object went " +
		"while no controller ran; TestHostileNetworkConfigs and others of package replicate do",
	"liqo-controller-manager sharing.liqo.io resourceslices get": "the same",
	"liqo-controller-manager net.liqo.io nodereports delete": "only after a node is gone: TestAttackNC1Nodes of " +
		"package network does",
	"liqo-controller-manager  persistentvolumes create":                                    noClaim,
	"liqo-controller-manager  persistentvolumes delete":                                    noClaim,
	"liqo-controller-manager  persistentvolumes get":                                       noClaim,
	"liqo-controller-manager  persistentvolumes patch":                                     noClaim,
	"liqo-controller-manager  persistentvolumeclaims get":                                  noClaim,
	"liqo-controller-manager  persistentvolumeclaims update":                               noClaim,
	"liqo-controller-manager  persistentvolumeclaims/status patch":                         noClaim,
	"liqo-controller-manager  persistentvolumeclaims create":                               noClaim,
	"liqo-controller-manager  persistentvolumeclaims delete":                               noClaim,
	"liqo-controller-manager  persistentvolumeclaims patch":                                noClaim,
	"liqo-controller-manager storage.liqo.io volumemoves get":                              noMove,
	"liqo-controller-manager storage.liqo.io volumemoves patch":                            noMove,
	"liqo-controller-manager storage.liqo.io volumemoves/status patch":                     noMove,
	"liqo-controller-manager storage.k8s.io storageclasses get":                            noMove,
	"liqo-controller-manager storage.k8s.io volumeattachments list":                        noMove,
	"liqo-controller-manager rbac.authorization.k8s.io rolebindings get":                   noMove,
	"liqo-controller-manager  events list":                                                 noMove,
	"liqo-controller-manager  services create":                                             noMove,
	"liqo-controller-manager  services delete":                                             noMove,
	"liqo-controller-manager networking.k8s.io networkpolicies create":                     noMove,
	"liqo-controller-manager networking.k8s.io networkpolicies delete":                     noMove,
	"liqo-controller-manager networking.k8s.io networkpolicies get":                        noMove,
	"liqo-controller-manager networking.k8s.io networkpolicies patch":                      noMove,
	"liqo-controller-manager  configmaps deletecollection":                                 notKept,
	"liqo-controller-manager  secrets deletecollection":                                    notKept,
	"liqo-controller-manager  services deletecollection":                                   notKept,
	"liqo-controller-manager networking.k8s.io ingresses deletecollection":                 notKept,
	"liqo-controller-manager virtualkubelet.liqo.io shadowendpointslices deletecollection": notKept,
	"liqo-controller-manager virtualkubelet.liqo.io shadowpods deletecollection":           notKept,
	"liqo-controller-manager  pods/resize patch": "only when the resources of a running pod are " +
		"changed: test/offload does",
	"virtual-kubelet  persistentvolumes delete":            noRemoteClaim,
	"virtual-kubelet  persistentvolumes get":               noRemoteClaim,
	"virtual-kubelet  persistentvolumes patch":             noRemoteClaim,
	"virtual-kubelet  persistentvolumeclaims/status patch": noRemoteClaim,
	"virtual-kubelet offloading.liqo.io namespaceoffloadings get": "only for custom resources: " +
		"TestSettingsCustomResources of test/offload",
}
