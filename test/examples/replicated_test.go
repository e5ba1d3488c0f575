// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"regexp"
	"slices"
	"testing"

	"liqo.io/liqo/test/guide"
)

func TestReplicatedDeployments(t *testing.T) {
	const (
		pods  = "kubectl get pod -n liqo-demo -o wide"
		rome  = `liqo-demo-app-\S+ +1/1 +Running +0 +[^\n]* liqo-europe-rome-edge `
		milan = `liqo-demo-app-\S+ +1/1 +Running +0 +[^\n]* liqo-europe-milan-edge `
	)
	one := guide.Want{
		Command: pods, Match: []string{rome, milan},
		Not: []string{`(?s)` + rome + `.*` + rome, `(?s)` + milan + `.*` + milan, `europe-cloud`, `Pending`},
	}
	namespace := []string{`liqo-demo +Active`}
	outputs := follow(t, "replicated-deployments", "replicated", []guide.Want{
		{Command: "liqoctl status", Match: []string{`topology.liqo.io/type.*origin`}},
		{Command: `liqoctl status --kubeconfig "$KUBECONFIG_EUROPE_ROME_EDGE"`, Match: []string{`topology.liqo.io/type.*destination`}},
		{Command: `liqoctl status --kubeconfig "$KUBECONFIG_EUROPE_MILAN_EDGE"`, Match: []string{`topology.liqo.io/type.*destination`}},
		{Command: "kubectl get foreignclusters", Match: []string{
			`europe-rome-edge +OutOfBand +Established +None +Established +Established`, `europe-milan-edge +OutOfBand +Established +None +Established +Established`,
		}},
		{Command: "kubectl get node --selector=liqo.io/type=virtual-node --show-labels", Match: []string{
			`liqo-europe-rome-edge +Ready .*topology.liqo.io/type=destination`, `liqo-europe-milan-edge +Ready .*topology.liqo.io/type=destination`,
		}},
		{Command: `kubectl get namespaces liqo-demo --kubeconfig="$KUBECONFIG_EUROPE_ROME_EDGE"`, Match: namespace},
		{Command: `kubectl get namespaces liqo-demo --kubeconfig="$KUBECONFIG_EUROPE_MILAN_EDGE"`, Match: namespace},
		one, // deployed
		one, // updated
		{Command: pods, Match: []string{`liqo-demo-app-\S+ +[01]/1 +Running +.* liqo-europe-rome-edge `, milan}, Not: []string{`Pending`}}, // cut off
		{Command: `kubectl get pod -n liqo-demo --kubeconfig="$KUBECONFIG_EUROPE_ROME_EDGE"`, Match: []string{`liqo-demo-app-\S+ +1/1 +Running +0 `}},
		one, // the link is back
		{Command: "kubectl get nodes", Match: []string{`europe-cloud-control-plane +Ready`}, Not: []string{`liqo-europe`}},
	})
	var seen [][]string // the names of the pods that run, each time
	for _, output := range outputs {
		if output.Command.Line == pods {
			names := regexp.MustCompile(`(?m)^\S+(?: +[01]/1 +Running)`).FindAllString(output.Text, -1)
			for i := range names {
				names[i] = regexp.MustCompile(`^\S+`).FindString(names[i])
			}
			slices.Sort(names)
			seen = append(seen, names)
		}
	}
	if len(seen) != 4 || !slices.Equal(seen[1], seen[2]) || !slices.Equal(seen[2], seen[3]) {
		t.Errorf("an edge that is cut off keeps its replica; these ran: %v", seen)
	}
}
