// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
)

// agent is a DaemonSet that tolerates every taint, as those of network plugins do.
const agent = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      tolerations: [{operator: Exists}]
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never}]
`

// agents returns how many pods of the DaemonSet are on the virtual node, and on other nodes.
func (s namespace) agents(t *testing.T) (virtual, real int) {
	t.Helper()
	for _, node := range strings.Fields(s.kubectl(
		t, "get", "pods", "-l", "app=agent", "-o",
		`jsonpath={range .items[*]}{.spec.nodeName}{.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.`+
			`nodeSelectorTerms[0].matchFields[0].values[0]}{"\n"}{end}`,
	)) {
		if strings.Contains(node, virtualNode) {
			virtual++
		} else {
			real++
		}
	}
	return virtual, real
}

// complete waits until a rollout of the DaemonSet ends, and checks that it has one pod on each node of rome and none elsewhere.
func (s namespace) complete(t *testing.T) {
	t.Helper()
	s.kubectl(t, "rollout", "status", "daemonset/agent", timeout)
	nodes := strings.Fields(rome.Kubectl(t, "get", "nodes", "-l", "liqo.io/type!=virtual-node", "-o", "jsonpath={.items[*].metadata.name}"))
	env.Eventually(t, env.Hang, "the pods of the previous template are gone", func() (string, bool) {
		virtual, real := s.agents(t)
		return fmt.Sprintf("%d pods are on the virtual node, and %d on the %d nodes of rome", virtual, real, len(nodes)), virtual == 0 && real == len(nodes)
	})
}

// TestDaemonSets: DaemonSets that tolerate every taint are complete beside a virtual node, and their updates end.
func TestDaemonSets(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it stops the controller manager; use -long")
	}
	installedAndPeered(t)
	t.Run("created after the peering", func(t *testing.T) {
		s := namespace{name: newNamespace(t)}
		s.apply(t, agent)
		s.complete(t)
		s.kubectl(t, "set", "env", "daemonset/agent", "VERSION=2")
		s.complete(t)
	})
	t.Run("not created through Liqo", func(t *testing.T) {
		s := namespace{name: newNamespace(t)}
		replicas := rome.Kubectl(t, "-n", "liqo", "get", "deployment", "liqo-controller-manager", "-o", "jsonpath={.spec.replicas}")
		back := func() {
			rome.Kubectl(t, "-n", "liqo", "scale", "deployment/liqo-controller-manager", "--replicas="+replicas)
			rome.Kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", timeout)
		}
		t.Cleanup(back)
		rome.Kubectl(t, "-n", "liqo", "scale", "deployment/liqo-controller-manager", "--replicas=0")
		rome.Kubectl(t, "-n", "liqo", "wait", "pod", "-l", "app.kubernetes.io/name=controller-manager", "--for=delete", timeout)
		s.apply(t, agent) // nothing answers for Liqo, and Kubernetes admits it
		env.Eventually(t, env.Hang, "the DaemonSet has a pod on the virtual node", func() (string, bool) {
			virtual, real := s.agents(t)
			return fmt.Sprintf("%d, and %d on others", virtual, real), virtual == 1
		})
		back()
		env.Eventually(t, env.Hang, "the API server reaches the webhook again", func() (string, bool) {
			probe := rome.TryKubectl(
				strings.Replace(agent, "name: agent", "name: probe", 1), "-n", s.name, "create", "--dry-run=server", "-f", "-", "-o",
				"jsonpath={.spec.template.spec.affinity}",
			)
			return probe.String(), strings.Contains(probe.Out, "liqo.io/type")
		})
		// Liqo leaves it as it is, until its owner changes it: that change is not stopped by the pod on the virtual node.
		if virtual, _ := s.agents(t); virtual != 1 {
			t.Errorf("%d pods are on the virtual node, want 1 until the DaemonSet changes", virtual)
		}
		s.kubectl(t, "rollout", "restart", "daemonset/agent")
		s.complete(t)
	})
	t.Run("Remote", func(t *testing.T) {
		s := offload(t, "--pod-offloading-strategy", "Remote")
		s.apply(t, agent)
		s.wantEvent(t, "DaemonSet", "agent", "FailedCreate", "offloaded with the strategy Remote", "liqo.io/type: virtual-node")
		if _, real := s.agents(t); real != 0 {
			t.Errorf("%d pods are on nodes of rome", real)
		}
		s.kubectl(t, "patch", "daemonset", "agent", "--type=merge", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"liqo.io/type":"virtual-node"}}}}}`)
		s.kubectl(t, "rollout", "status", "daemonset/agent", timeout)
		// Only now: the controller of DaemonSets ends each round at the first refusal, so before, the pod of the virtual node comes when a round begins with it.
		if output := s.remoteKubectl(t, "get", "pods", "-l", "app=agent", "--no-headers"); strings.Count(output, "Running") != 1 || strings.Count(output, "\n") != 0 {
			t.Errorf("milan has other pods than the one of the virtual node:\n%s", output)
		}
	})
}
