// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
)

// cause is a fault that the test causes.
type cause struct {
	name  string
	start func(*testing.T)
	hold  time.Duration    // from the call of start to the call of end
	end   func(*testing.T) // nil: the fault ends without a repair
	nodes []string         // of milan, whose containers it ends
	long  bool             // only with -long, or if it is named
	named bool             // only if it is named: it affects more than the clusters
}

// length returns how long a fault lasts: long enough that its dependents notice, or, with -long, as long as the targets define.
func length(short, whole time.Duration) time.Duration {
	if *long {
		return whole
	}
	return short
}

func causes() []cause {
	both := []*env.Cluster{rome, milan}
	lost := milan.Nodes[len(milan.Nodes)-1]
	return []cause{
		{name: "virtual kubelet killed", start: func(t *testing.T) { rome.Kill(t, "virtual-kubelet") }},
		{name: "virtual kubelet deleted", long: true, start: func(t *testing.T) {
			rome.Kubectl(t, "delete", "pods", "-A", "-l", labels.AppName+"=virtual-kubelet", "--grace-period=0", "--force", "--wait=false")
		}},
		{name: "Liqo's controller managers killed", start: func(t *testing.T) {
			for _, c := range both {
				c.Kill(t, "controller-manager")
			}
		}},
		{name: "Kubernetes' controller managers killed", long: true, start: func(t *testing.T) { components(t, "kill", both, "kube-controller-manager") }},
		{name: "API servers restarted", start: func(t *testing.T) { components(t, "kill", both, "kube-apiserver") }, end: answers},
		{
			name: "API servers away", long: true, hold: 20 * time.Second, start: func(t *testing.T) { components(t, "stop", both, "kube-apiserver") },
			end: func(t *testing.T) { components(t, "start", both, "kube-apiserver"); answers(t) },
		},
		{
			name: "clusters cut off from each other", hold: length(time.Minute, 10*time.Minute),
			start: func(t *testing.T) { clusters.Do(t, "fault", "partition", rome.Name, milan.Name) },
			end:   func(t *testing.T) { clusters.Do(t, "fault", "heal", rome.Name, milan.Name) },
		},
		{
			name: "history compacted while cut off", long: true, hold: 40 * time.Second,
			start: func(t *testing.T) { clusters.Do(t, "fault", "partition", rome.Name, milan.Name) },
			end: func(t *testing.T) {
				// API servers keep old resource versions in etcd and in their memory: this removes both.
				for _, c := range both {
					compact(t, c)
				}
				components(t, "kill", both, "kube-apiserver")
				answers(t)
				clusters.Do(t, "fault", "heal", rome.Name, milan.Name)
			},
		},
		{name: "everything restarted at once", start: everything, end: answers},
		{
			name: "provider's node lost", long: true, hold: length(45*time.Second, 7*time.Minute), nodes: []string{lost.Name},
			start: func(t *testing.T) { clusters.Do(t, "node", "stop", milan.Name, lost.Name) },
			end: func(t *testing.T) {
				clusters.Do(t, "node", "start", milan.Name, lost.Name)
				milan.Kubectl(t, "wait", "node", lost.Name, "--for=condition=Ready", "--timeout=120s")
				atRest(t, milan)
			},
		},
		jumps("clock jumps forward", 10*time.Minute),
		jumps("clock jumps back", -10*time.Minute),
	}
}

// atRest waits until Kubernetes itself has recovered: no pod is being deleted, and all that have not ended are Ready. A node that was away for minutes
// first ends all pods that were evicted from it, one after the other; until then each of them differs in turn for a moment.
func atRest(t *testing.T, c *env.Cluster) {
	t.Helper()
	env.Eventually(t, env.Hang, "all pods of "+c.Name+" are Ready, and none is being deleted", func() (string, bool) {
		var all corev1.PodList
		if err := c.API.List(t.Context(), &all); err != nil {
			return err.Error(), false
		}
		n := 0
		for i := range all.Items {
			pod := &all.Items[i]
			ready := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
				return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
			})
			ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
			if pod.DeletionTimestamp != nil || !ended && !ready {
				n++
			}
		}
		if n > 0 {
			<-time.After(500 * time.Millisecond) // polls slowly: each answer lists 200 pods
		}
		return fmt.Sprintf("%d of %d are not", n, len(all.Items)), n == 0
	})
}

func components(t *testing.T, verb string, all []*env.Cluster, names ...string) {
	t.Helper()
	for _, c := range all {
		for _, name := range names {
			clusters.Do(t, "component", verb, c.Name, name)
		}
	}
}

// answers waits until both API servers answer, which is the end of the cause.
func answers(t *testing.T) {
	t.Helper()
	for _, c := range []*env.Cluster{rome, milan} {
		env.Eventually(t, time.Minute, "the API server of "+c.Name+" answers", func() (string, bool) {
			result := c.TryKubectl("", "get", "--raw", "/readyz", "--request-timeout=2s")
			return result.String(), result.Code == 0
		})
	}
}

// everything kills all processes of Kubernetes and Liqo in both clusters, except the container runtimes and the containers of the test.
func everything(t *testing.T) {
	var victims []int
	for _, c := range []*env.Cluster{rome, milan} {
		pods, err := c.Pods("", map[string]string{labels.AppPartOf: labels.PartOf})
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range pods {
			if id, err := pod.Process("liqo"); err == nil && !slices.Contains(victims, id) {
				victims = append(victims, id)
			}
		}
	}
	if len(victims) < 8 {
		t.Errorf("only %d processes of Liqo run", len(victims))
	}
	for _, id := range victims {
		if err := syscall.Kill(id, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("kill process %d: %v", id, err)
		}
	}
	for _, c := range []*env.Cluster{rome, milan} {
		components(t, "kill", []*env.Cluster{c}, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
		for _, node := range c.Nodes {
			clusters.Do(t, "component", "kill", c.Name, node.Name+"/kubelet")
			clusters.Do(t, "component", "kill", c.Name, node.Name+"/kube-proxy")
		}
	}
	clusters.Measure("everything restarted at once", "%s", fmt.Sprintf("%d processes of Liqo, 16 of Kubernetes", len(victims)))
}
