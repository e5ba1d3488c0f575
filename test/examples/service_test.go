// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"regexp"
	"strings"
	"testing"

	"liqo.io/liqo/test/guide"
)

func TestServiceOffloading(t *testing.T) {
	const (
		consumer = `echo "$CURL" | kubectl run consumer --rm -i --image playground.local/tools:1 --restart=Never`
		there    = ` --kubeconfig "$KUBECONFIG_NEWYORK"`
		here     = `flights-\S+ +1/1 +Running [^\n]* london-control-plane `
	)
	services, nothing, schedule := []string{`flights-service +ClusterIP +[0-9.]+ .* 7999/TCP`}, []string{"^No resources found in liqo-demo namespace"},
		[]string{`"flight": "BA 175"`}
	outputs := follow(t, "service-offloading", "service", []guide.Want{
		{Command: "kubectl get foreignclusters", Match: []string{`newyork +OutOfBand +Established +None +Established +Established`}},
		{Command: "kubectl get services --namespace liqo-demo", Match: services},
		{Command: "kubectl get services --namespace liqo-demo" + there, Match: services},
		{Command: "kubectl get pods --namespace liqo-demo" + there, Match: nothing},
		{Command: consumer + " -- /bin/sh", Match: schedule},
		{Command: consumer + " --kubeconfig $KUBECONFIG_NEWYORK -- /bin/sh", Match: schedule},
		{Command: "kubectl get pods -n liqo-demo -o wide", Match: []string{here}, Not: []string{"liqo-newyork"}},
		{Command: "kubectl get endpointslices -n liqo-demo" + there, Match: []string{`flights-service-\S+ +IPv4 +7999 +[0-9.]+ `}},
		{Command: "kubectl get pods -n liqo-demo -o wide", Match: []string{`(?s)` + here + `.*` + here}, Not: []string{"liqo-newyork"}},
		{Command: "kubectl get pods --namespace liqo-demo" + there, Match: nothing},
		{Command: consumer + " --kubeconfig $KUBECONFIG_NEWYORK -- /bin/sh", Match: schedule},
		{Command: consumer + " --kubeconfig $KUBECONFIG_NEWYORK -- /bin/sh", Not: schedule},
		{Command: "kubectl get namespaces" + there, Match: []string{`default +Active`}, Not: []string{"liqo-demo"}},
		{Command: "kubectl get nodes", Match: []string{`london-control-plane +Ready`}, Not: []string{"liqo-"}},
	})
	addresses := map[string]bool{}
	for _, one := range outputs {
		if strings.HasPrefix(one.Command.Line, "kubectl get services ") {
			addresses[regexp.MustCompile(`ClusterIP +([0-9.]+)`).FindString(one.Text)] = true
		}
	}
	if len(addresses) != 2 {
		t.Errorf("the Service has the addresses %v; the clusters assign them independently", addresses)
	}
}
