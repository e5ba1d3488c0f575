// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func thousandHollowPods(t *testing.T) {
	provider := clusterNamed(t, "provider")
	provider.hollowPods(t, "kwok", 100, 1000)
}

func kubemarkPods(t *testing.T, c cluster) {
	c.hollowPods(t, "kubemark", 5, 20)
}

// hollowPods checks that the given number of nodes of a kind is Ready, and runs pods on all of them.
func (c cluster) hollowPods(t *testing.T, kind string, nodes, pods int) {
	t.Helper()
	ready := 0
	text := c.kubectl(t, "get", "nodes", "--selector=type="+kind, "-o",
		`jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "True" {
			ready++
		}
	}
	if ready != nodes {
		t.Errorf("want %d %s nodes Ready, have %d", nodes, kind, ready)
	}
	r := c.newNamespace(t)
	began := time.Now()
	r.apply(t, "hollow.yaml", map[string]any{"Replicas": pods, "Type": kind})
	r.rollout(t, "deployment/hollow")
	measure(kind+" pods Ready", "%d in %.1f s", pods, time.Since(began).Seconds())
	// A kubemark node reports a pod Ready before it is Running.
	eventually(t, 60*time.Second, "the pods are Running and Ready on all nodes", func() (string, bool) {
		used, total := map[string]int{}, 0
		for line := range strings.Lines(r.kubectl(t, "get", "pods", "-o",
			`jsonpath={range .items[*]}{.spec.nodeName} {.status.phase} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)) {
			if f := strings.Fields(line); len(f) == 3 && f[1] == "Running" && f[2] == "True" {
				used[f[0]]++
				total++
			}
		}
		return fmt.Sprintf("%d pods on %d nodes: %v", total, len(used), used), total == pods && len(used) == nodes
	})
	measure(kind+" pods Running", "%d in %.1f s", pods, time.Since(began).Seconds())
}

// apiServersAreSeparate: what is made in one is not in the other.
func apiServersAreSeparate(t *testing.T) {
	consumer, provider := clusterNamed(t, "consumer"), clusterNamed(t, "provider")
	for _, c := range []cluster{consumer, provider} {
		if have := c.kubectl(t, "get", "--raw", "/readyz"); have != "ok" {
			t.Errorf("%s: /readyz returns %q", c.Name, have)
		}
		c.kubectl(t, "create", "namespace", "only-in-"+c.Name)
	}
	for _, pair := range [][2]cluster{{consumer, provider}, {provider, consumer}} {
		res := pair[0].try("get", "namespace", "only-in-"+pair[1].Name)
		if res.code == 0 || !strings.Contains(res.err, "NotFound") {
			t.Errorf("%s must not have the namespace of %s: %s", pair[0].Name, pair[1].Name, res)
		}
		own := pair[0].try("get", "namespace", "only-in-"+pair[0].Name)
		if own.code != 0 {
			t.Errorf("%s", own)
		}
	}
	if res := consumer.try("get", "nodes", "-o", "name"); res.code != 0 || res.out != "" {
		t.Errorf("want no nodes: %s", res)
	}
}
