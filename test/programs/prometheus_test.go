// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// kubelet are the pages of a kubelet that kube-prometheus scrapes.
var kubelet = []string{"/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource"}

// nodeJobs are scrape configurations for each page of each node, at the port of its kubelet and through the API server.
func nodeJobs() string {
	var text strings.Builder
	for _, page := range kubelet {
		for _, way := range []struct{ name, relabel string }{
			{"kubelet", fmt.Sprintf("[{target_label: __metrics_path__, replacement: %s}]", page)},
			{"proxy", fmt.Sprintf("[{target_label: __address__, replacement: 'kubernetes.default.svc:443'}, {source_labels: "+
				"[__meta_kubernetes_node_name], regex: (.+), target_label: __metrics_path__, replacement: '/api/v1/nodes/$1/proxy%s'}]", page)},
		} {
			fmt.Fprintf(&text, `
    - job_name: %s%s
      scheme: https
      honor_timestamps: false
      authorization: {credentials_file: /var/run/secrets/kubernetes.io/serviceaccount/token}
      tls_config: {insecure_skip_verify: true}
      kubernetes_sd_configs: [{role: node}]
      relabel_configs: %s`, way.name, page, way.relabel)
		}
	}
	return strings.TrimPrefix(text.String(), "\n    ")
}

// targets are the ones of a replica of Prometheus: job and instance, and why it is not up.
func (p program) targets(pod string) (map[string]string, error) {
	r := rome.TryKubectl("", "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:9090/proxy/api/v1/targets?state=active", p.namespace, pod))
	if r.Code != 0 {
		return nil, fmt.Errorf("ask %s: %s", pod, r)
	}
	var answer struct {
		Data struct {
			ActiveTargets []struct {
				ScrapePool, ScrapeURL, Health, LastError string
				Labels                                   map[string]string
			}
		}
	}
	if err := json.Unmarshal([]byte(r.Out), &answer); err != nil {
		return nil, fmt.Errorf("ask %s: %w: %s", pod, err, r.Out)
	}
	all := map[string]string{}
	for _, target := range answer.Data.ActiveTargets {
		why := ""
		if target.Health != "up" {
			why = target.Health + ": " + target.LastError
		}
		all[fmt.Sprintf("%s %s %s", target.ScrapePool, target.ScrapeURL, target.Labels["node"])] = why
	}
	return all, nil
}

// TestPrometheus: a Prometheus in each cluster finds and scrapes pods and endpoints in both, and every page of every node, the virtual one included.
func TestPrometheus(t *testing.T) {
	p := start(t, "prometheus", "prometheus-image.tar")
	t.Cleanup(func() { rome.Kubectl(t, "delete", "--ignore-not-found", "clusterrole,clusterrolebinding", p.namespace) })
	p.apply(t, "prometheus", "NODES", nodeJobs())
	p.ready(t, 2, "app=app")
	home, remote := p.ready(t, 2, "app=prometheus")
	if len(home) != 1 || len(remote) != 1 {
		t.Fatalf("%d replicas are here and %d at the provider: this proves nothing", len(home), len(remote))
	}
	// Two applications and two servers, found as pods and as endpoints, and each page of three nodes in two ways.
	want := 2*4 + 2*len(kubelet)*(len(rome.Nodes)+1)
	for at, pod := range map[string]string{here: home[0].Name, there: remote[0].Name} {
		t.Run(at, func(t *testing.T) {
			overlapping(t, at)
			env.Eventually(t, env.Hang, fmt.Sprintf("%d targets are up", want), func() (string, bool) {
				all, err := p.targets(pod)
				if err != nil {
					return err.Error(), false
				}
				up := 0
				var seen []string
				for _, target := range slices.Sorted(maps.Keys(all)) {
					if all[target] == "" {
						up++
						continue
					}
					seen = append(seen, target+" "+all[target])
				}
				return fmt.Sprintf("%d of %d are up\n      %s", up, len(all), strings.Join(seen, "\n      ")), up == want && len(all) == want
			})
			clusters.Measure("Prometheus "+at, "%d targets are up", want)
		})
	}
}
