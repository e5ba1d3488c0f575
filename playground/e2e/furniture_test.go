// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// furnitureNS is the namespace that the checks share for reading: testdata/web.yaml.
const furnitureNS = "e2e-web"

// furniture is what stands in it, in one cluster.
type furniture struct {
	room
	tools    map[string]string // pod of network tools by node
	web      []webPod
	nodePort string
	service  string // address
}

type webPod struct{ name, node, ip string }

// answer is what a pod of the demo image says of itself.
type answer struct{ Pod, Node, Cluster, IP, Client string }

var furnished map[string]furniture

// furnish fills every cluster that is up, and shows what is there if anything fails later.
func furnish(t *testing.T) {
	t.Helper()
	began := time.Now()
	furnished = map[string]furniture{}
	for _, c := range bed.Clusters {
		c.kubectl(t, "create", "namespace", furnitureNS)
		room{c, furnitureNS}.apply(t, "web.yaml", nil)
	}
	for _, c := range bed.Clusters {
		r := room{c, furnitureNS}
		for _, workload := range []string{"deployment/web", "daemonset/tools", "deployment/meter"} {
			if said := r.try("rollout", "status", workload, "--timeout=90s"); said.code != 0 {
				r.show(t)
				t.Fatalf("%s: %s", c.Name, said)
			}
		}
		f := furniture{room: r, tools: map[string]string{}}
		for _, p := range r.pods(t, "app=tools") {
			f.tools[p.node] = p.name
		}
		f.web = r.pods(t, "app=web")
		f.nodePort = r.get(t, "service/web", "{.spec.ports[0].nodePort}")
		f.service = r.get(t, "service/web", "{.spec.clusterIP}")
		furnished[c.Name] = f
	}
	measure("furnish three clusters", "%.1f s", time.Since(began).Seconds())
}

// pods lists running pods.
func (r room) pods(t testing.TB, selector string) []webPod {
	t.Helper()
	text := r.kubectl(t, "get", "pods", "--selector="+selector, "--field-selector=status.phase=Running", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIP}{"\n"}{end}`)
	var all []webPod
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 {
			all = append(all, webPod{f[0], f[1], f[2]})
		}
	}
	return all
}

// tool is the pod of network tools on the cluster's last node, which is a worker if there is one.
func (f furniture) tool() string {
	last := ""
	for node := range f.tools {
		last = max(last, node) // "control-plane" sorts before "worker"
	}
	return f.tools[last]
}

// curl asks a URL from the pod of network tools on a node.
func (f furniture) curl(t testing.TB, pod string, args ...string) string {
	t.Helper()
	return f.exec(t, pod, append([]string{"curl", "--silent", "--show-error", "--fail", "--max-time", "10"}, args...)...)
}

func decode(t testing.TB, text string) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.Pod == "" {
		t.Fatalf("no answer of a demo pod (%v): %q", err, text)
	}
	return a
}
