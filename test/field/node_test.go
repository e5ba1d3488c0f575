// SPDX-License-Identifier: Apache-2.0

package field

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/test/env"
)

// TestKubelet: what the usual readers of kubelets ask each node, the virtual node answers as well, with the rights that they have.
func TestKubelet(t *testing.T) {
	together(t)
	s := play(t, "kubelet")
	rome.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules: [{apiGroups: [""], resources: [nodes/metrics, nodes/stats, nodes/pods, nodes/healthz, nodes/configz, nodes/proxy], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: reader, namespace: %[1]s}]
`, s.name))
	t.Cleanup(func() {
		rome.Kubectl(t, "delete", "clusterrolebinding,clusterrole", s.name)
	})
	get := func(node, path string) string {
		return rome.TryKubectl("", "get", "--raw", "/api/v1/nodes/"+node+"/proxy/"+path, "--as", "system:serviceaccount:"+s.name+":reader").String()
	}
	for _, double := range []string{"home", "remote"} {
		s.kubectl(t, "wait", "pod/"+double, "--for=condition=Ready", "--timeout=120s")
		node := s.pod(t, double).Spec.NodeName
		for path, words := range map[string][]string{
			"healthz":          {"ok"},
			"metrics":          {"kubelet_running_pods", "process_start_time_seconds", "kubelet_node_name"},
			"metrics/cadvisor": {""},
			"metrics/probes":   {""},
			"metrics/resource": {"node_cpu_usage_seconds_total"},
			"stats/summary":    {`"nodeName"`},
			"pods":             {`"PodList"`, `"` + double + `"`, s.name},
			"runningpods/":     {`"PodList"`},
			"configz":          {`"kubeletconfig"`},
		} {
			env.Eventually(t, env.Hang, node+" answers /"+path, func() (string, bool) {
				seen := get(node, path)
				return seen, !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(seen, word) }) && !strings.Contains(seen, "NotFound")
			})
		}
	}
}

// TestCordon: the maintenance of milan's nodes keeps new pods away, and touches none that runs.
func TestCordon(t *testing.T) {
	peered(t)
	s := play(t, "cordon")
	s.kubectl(t, "wait", "pod/remote", "--for=condition=Ready", "--timeout=120s")
	before := s.pod(t, "remote")
	var workers []string
	for _, node := range milan.Nodes {
		workers = append(workers, node.Name)
	}
	t.Cleanup(func() { milan.Kubectl(t, append([]string{"uncordon"}, workers...)...) })
	milan.Kubectl(t, append([]string{"cordon"}, workers...)...)
	// The grant becomes empty: then the node takes no new pod.
	env.Eventually(t, env.Hang, "the virtual node takes no new pod", func() (string, bool) {
		node, err := rome.VirtualNode(milan)
		if err != nil {
			return err.Error(), false
		}
		closed := node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == "virtual-node.liqo.io/no-new-pods" && taint.Effect == corev1.TaintEffectNoSchedule
		})
		return fmt.Sprintf("unschedulable %t, taints %v, allocatable %v", node.Spec.Unschedulable, node.Spec.Taints, node.Status.Allocatable), closed ||
			node.Status.Allocatable.Cpu().IsZero()
	})
	node, err := rome.VirtualNode(milan)
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range node.Status.Conditions {
		if good := condition.Status == corev1.ConditionTrue; good != (condition.Type == corev1.NodeReady) {
			t.Errorf("with all nodes of milan cordoned, the virtual node has the condition %s=%s: %s", condition.Type, condition.Status, condition.Message)
		}
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute && !strings.HasPrefix(taint.Key, "virtual-node.liqo.io/") {
			t.Errorf("with all nodes of milan cordoned, the virtual node evicts by %s", taint.ToString())
		}
	}
	milan.Kubectl(t, append([]string{"uncordon"}, workers...)...)
	s.kubectl(t, "run", "after", "--image", env.ToolsImage, "--image-pull-policy=Never", "--restart=Never",
		`--overrides={"spec":{"nodeSelector":{"liqo.io/type":"virtual-node"},"terminationGracePeriodSeconds":1}}`)
	s.kubectl(t, "wait", "pod/after", "--for=condition=Ready", "--timeout=120s")
	if after := s.pod(t, "remote"); after.UID != before.UID || after.DeletionTimestamp != nil || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod that ran is another, ends, or was restarted: %v", after.Status)
	}
}
