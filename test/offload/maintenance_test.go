// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"slices"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// ofNode returns a part of the virtual node.
func ofNode(t *testing.T, path string) string {
	t.Helper()
	return rome.Kubectl(t, "get", "node", virtualNode, "-o", "jsonpath="+path)
}

const (
	closedNode = `{.spec.taints[?(@.key=="virtual-node.liqo.io/no-new-pods")].effect}`
	readyNode  = `{.status.conditions[?(@.type=="Ready")].status}`
)

// TestMaintenance: a provider that cordons all its nodes gets no new pods, and keeps those that run, whatever they tolerate.
func TestMaintenance(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it cordons all nodes of the provider; use -long")
	}
	installedAndPeered(t)
	s := deployed(t, idle, 2)
	// Kubernetes would evict it at once from a node that is not Ready.
	s.apply(t, strings.Replace(strings.ReplaceAll(plainPod, "NAME", "impatient"), "spec:",
		"spec:\n  tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 0}, {key: "+
			"node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 0}]", 1))
	s.running(t, "impatient")
	const pods = `jsonpath={range .items[*]}{.metadata.uid} {.metadata.deletionTimestamp} {.status.containerStatuses[0].restartCount} {.spec.nodeName}{"\n"}{end}`
	before := strings.Split(strings.TrimSpace(s.kubectl(t, "get", "pods", "-o", pods)), "\n")

	nodes := strings.Fields(milan.Kubectl(t, "get", "nodes", "-l", "!liqo.io/type", "-o", "name"))
	uncordon := func() { milan.Kubectl(t, append([]string{"uncordon"}, nodes...)...) }
	t.Cleanup(uncordon)
	milan.Kubectl(t, append([]string{"cordon"}, nodes...)...)
	env.Eventually(t, env.Hang, "the virtual node takes no new pods", func() (string, bool) {
		effect := ofNode(t, closedNode)
		return effect, effect == "NoSchedule"
	})
	if ready, pressure := ofNode(t, readyNode), ofNode(t, `{.status.conditions[?(@.type=="MemoryPressure")].status}`); ready != "True" || pressure != "False" {
		t.Errorf("while milan's nodes are cordoned: Ready=%s, MemoryPressure=%s", ready, pressure)
	}
	s.kubectl(t, "scale", "deployment/web", "--replicas=3")
	if seen := nodesOf(t, s, 3); seen[virtualNode] != 2 {
		t.Errorf("with one more replica, pods run on %v", seen)
	}
	after := strings.Split(strings.TrimSpace(s.kubectl(t, "get", "pods", "-o", pods)), "\n")
	for _, pod := range before {
		if !slices.Contains(after, pod) {
			t.Errorf("a pod was %q before the cordon; now there are %q", pod, after)
		}
	}
	uncordon()
	env.Eventually(t, env.Hang, "the virtual node takes pods again", func() (string, bool) {
		effect := ofNode(t, closedNode)
		return effect, effect == ""
	})
	s.kubectl(t, "rollout", "restart", "deployment/web")
	s.kubectl(t, "rollout", "status", "deployment/web", timeout)
	if seen := nodesOf(t, s, 3); seen[virtualNode] != 3 {
		t.Errorf("after milan is back, pods run on %v", seen)
	}
}

// TestKubeletPages: the API server reads the pages of the virtual node's port as it reads those of any kubelet.
func TestKubeletPages(t *testing.T) {
	installedAndPeered(t)
	s := deployed(t, idle, 1)
	uid := s.kubectl(t, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.uid}")
	for path, want := range map[string]string{
		"metrics": `kubelet_node_name{node="` + virtualNode + `"} 1`, "pods": uid, "runningpods/": uid, "configz": `"kubeletconfig"`, "healthz": "ok",
		"metrics/slis": "kubernetes_healthcheck", "metrics/probes": "", "metrics/cadvisor": "", "metrics/resource": "", "stats/summary": `"nodeName"`,
	} {
		result := rome.TryKubectl("", "get", "--raw", "/api/v1/nodes/"+virtualNode+"/proxy/"+path)
		if result.Code != 0 || !strings.Contains(result.String(), want) {
			t.Errorf("%s lacks %q: %.300s", path, want, result)
		}
	}
	if manager := rome.Kubectl(
		t, "-n", "kube-node-lease", "get", "lease", virtualNode, "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}",
	); !strings.Contains(manager, "liqo-virtual-kubelet") {
		t.Errorf("the lease of the virtual node is written by %q", manager)
	}
}
