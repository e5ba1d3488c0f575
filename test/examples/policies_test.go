// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"testing"

	"liqo.io/liqo/test/guide"
)

func TestOffloadingWithPolicies(t *testing.T) {
	const (
		south       = `app-south-\S+ +1/1 +Running +.* liqo-naples `
		centerWaits = `app-center-\S+ +0/1 +Pending +.* <none> `
	)
	follow(t, "offloading-with-policies", "policies", []guide.Want{
		{Command: "liqoctl status", Match: []string{`topology.liqo.io/region.*north`}},
		{Command: "liqoctl --kubeconfig $KUBECONFIG_FLORENCE status", Match: []string{`topology.liqo.io/region.*center`}},
		{Command: "liqoctl --kubeconfig $KUBECONFIG_NAPLES status", Match: []string{`topology.liqo.io/region.*south`}},
		{Command: "kubectl get foreignclusters", Match: []string{
			`florence +OutOfBand +Established +None +Established +Established`, `naples +OutOfBand +Established +None +Established +Established`,
		}},
		{Command: "kubectl get node --selector=liqo.io/type=virtual-node --show-labels", Match: []string{
			`liqo-florence +Ready .*topology.liqo.io/region=center`, `liqo-naples +Ready .*topology.liqo.io/region=south`,
		}},
		{Command: "kubectl get namespaceoffloadings offloading -n liqo-demo -o yaml", Match: []string{
			`offloadingPhase: Ready`, `(?s)florence\S*:\n.*reason: ClusterNotSelected\n.*naples\S*:\n.*reason: ClusterSelected\n.*reason: NamespaceCreated\n`,
		}},
		{Command: `kubectl get namespaces liqo-demo --kubeconfig="$KUBECONFIG_NAPLES"`, Match: []string{`liqo-demo +Active`}},
		{Command: `kubectl get namespaces liqo-demo --kubeconfig="$KUBECONFIG_FLORENCE"`, Match: []string{`NotFound`}},
		{Command: "kubectl get pod -n liqo-demo -o wide", Match: []string{south, centerWaits}},
		{
			Command: "kubectl describe pod -n liqo-demo -l app=app-center",
			Match:   []string{`FailedScheduling .*0/3 nodes are available.*didn't match Pod's node affinity`},
		},
		{
			Command: "kubectl get pod -n liqo-demo -l app=app-center -o wide",
			Match:   []string{`1/1 +Running .* (venice-control-plane|liqo-naples) `}, Not: []string{`florence`},
		},
		{Command: `kubectl get namespaces liqo-demo --kubeconfig="$KUBECONFIG_FLORENCE"`, Match: []string{`liqo-demo +Active`}},
		{Command: "kubectl get pod -n liqo-demo -o wide", Match: []string{south, `app-center-\S+ +1/1 +Running +.* liqo-florence `}},
		{Command: "kubectl get pod -n liqo-demo -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,PHASE:.status.phase,REASON:.status.reason", Match: []string{
			`app-south-\S+ +liqo-naples +Running`, `app-center-\S+ +<none> +Pending`, `app-center-\S+ +liqo-florence +Failed +OffloadingAborted`,
		}},
		{Command: "kubectl get nodes", Match: []string{`venice-control-plane +Ready`}, Not: []string{`liqo-`}},
	})
}
