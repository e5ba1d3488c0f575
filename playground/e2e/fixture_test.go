// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// fixtureNS is the namespace that the checks share for reading: testdata/web.yaml.
const fixtureNS = "e2e-web"

// fixture holds the workloads of that namespace in one cluster.
type fixture struct {
	namespace
	tools    map[string]string // pod of network tools by node
	web      []webPod
	nodePort string
	service  string // address
}

type webPod struct{ name, node, ip string }

// answer is the identity that a pod of the demo image reports.
type answer struct{ Pod, Node, Cluster, IP, Client string }

var fixtures map[string]fixture

// makeFixtures applies the fixture to every cluster that is up.
func makeFixtures(t *testing.T) {
	t.Helper()
	began := time.Now()
	fixtures = map[string]fixture{}
	for _, c := range current.Clusters {
		c.kubectl(t, "create", "namespace", fixtureNS)
		namespace{c, fixtureNS}.apply(t, "web.yaml", nil)
	}
	for _, c := range current.Clusters {
		r := namespace{c, fixtureNS}
		for _, workload := range []string{"deployment/web", "daemonset/tools", "deployment/meter"} {
			if res := r.try("rollout", "status", workload, "--timeout=90s"); res.code != 0 {
				r.show(t)
				t.Fatalf("%s: %s", c.Name, res)
			}
		}
		f := fixture{namespace: r, tools: map[string]string{}}
		for _, p := range r.pods(t, "app=tools") {
			f.tools[p.node] = p.name
		}
		f.web = r.pods(t, "app=web")
		f.nodePort = r.get(t, "service/web", "{.spec.ports[0].nodePort}")
		f.service = r.get(t, "service/web", "{.spec.clusterIP}")
		fixtures[c.Name] = f
	}
	measure("makeFixtures three clusters", "%.1f s", time.Since(began).Seconds())
}

// pods lists running pods.
func (r namespace) pods(t testing.TB, selector string) []webPod {
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
func (f fixture) tool() string {
	last := ""
	for node := range f.tools {
		last = max(last, node) // "control-plane" sorts before "worker"
	}
	return f.tools[last]
}

// curl asks a URL from the pod of network tools on a node.
func (f fixture) curl(t testing.TB, pod string, args ...string) string {
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
