// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"regexp"
	"strconv"
	"testing"

	"liqo.io/liqo/test/guide"
)

func TestGlobalIngress(t *testing.T) {
	const (
		ingress = `podinfo +nginx +liqo.cloud.example.com +`
		two     = `^10\.\S+\n10\.\S+\n$`
		both    = `(?s)pod +podinfo-.*pod +podinfo-`
	)
	outputs := follow(t, "global-ingress", "global-ingress", []guide.Want{
		{Command: "kubectl get foreignclusters", Match: []string{`gslb-us +OutOfBand +Established +None +Established +Established`}},
		{Command: "kubectl get node --selector=liqo.io/type=virtual-node", Match: []string{`liqo-gslb-us +Ready`}},
		{
			Command: "kubectl get pods -n podinfo -o wide",
			Match:   []string{`podinfo-\S+ +1/1 +Running [^\n]* gslb-eu-worker `, `podinfo-\S+ +1/1 +Running [^\n]* liqo-gslb-us `},
		},
		{Command: "kubectl get ingress -n podinfo", Match: []string{ingress}},
		{Command: `kubectl get ingress -n podinfo --kubeconfig "$KUBECONFIG_US"`, Match: []string{`podinfo +<none> +liqo.cloud.example.com +`}},
		{
			Command: `kubectl get endpointslices -n podinfo --kubeconfig "$KUBECONFIG_US"`,
			Match:   []string{`(?s)podinfo-\S+ +IPv4 +9898 +[0-9.]+ .*podinfo-\S+ +IPv4 +9898 +[0-9.]+ `},
		},
		{Command: "answers", Match: []string{`^(10\.\S+\n){4}$`}},
		{Command: "report curl", Match: []string{`HTTP/1.1 200 OK`, `"pod": ?"podinfo-`}},
		{Command: "requests 5s; report load", Match: []string{both, `, 0 failed, 0 not sent`}},
		{Command: "answers", Match: []string{two}},
		{Command: "answers", Match: []string{two}},
		{Command: "requests 5s; report load", Match: []string{`, 0 failed, 0 not sent`}, Not: []string{both}}, // gslb-us is off
		{Command: "requests 5s; report load", Match: []string{both, `, 0 failed, 0 not sent`}},
		{Command: "kubectl get nodes", Match: []string{`gslb-eu-worker +Ready`}, Not: []string{"liqo-gslb-us"}},
	})
	// Requests go on while something fails. Those that it had in work are lost.
	most := []int{20, 20, 40} // of 20 a second: an ingress controller, a gateway, a cluster
	counted := regexp.MustCompile(`requests +(\d+) in .* (\d+) ok, (\d+) failed, (\d+) not sent`)
	for _, one := range outputs {
		if one.Command.Line != "report load" || len(most) == 0 {
			continue
		}
		found := counted.FindStringSubmatch(one.Text)
		if found == nil {
			t.Fatalf("no report in %s", one.Text)
		}
		if failed, err := strconv.Atoi(found[3]); err != nil || failed > most[0] || found[4] != "0" {
			t.Errorf("want at most %d requests to fail: %s", most[0], one.Text)
		}
		most = most[1:]
	}
	if len(most) > 0 {
		t.Errorf("the guide lacks %d of the reports", len(most))
	}
}
