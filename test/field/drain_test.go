// SPDX-License-Identifier: Apache-2.0

package field

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
)

const controlPlane = "node-role.kubernetes.io/control-plane"

// TestDrain: milan's administrator drains the node with the pods of rome, and the budget of rome's user is respected: pods are replaced one by one.
// milan has one worker, so its control plane takes pods meanwhile.
func TestDrain(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it drains a node, whose pods need some seconds each; use -long")
	}
	peered(t)
	s := play(t, "drain")
	for _, deployment := range []string{"here", "there"} {
		s.kubectl(t, "rollout", "status", "deployment/"+deployment, "--timeout=180s")
	}
	remote := s.remote(t)
	s.allows(t, remote, "2 1") // three of four, one of which is in rome

	// A budget that allows none: the eviction is refused, as a drain shows it.
	s.kubectl(t, "patch", "pdb", "drain", "-p", `{"spec":{"maxUnavailable":0}}`)
	s.allows(t, remote, "3 0")
	pods := s.inMilan(t, remote)
	refused := milan.TryKubectl(fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"namespace":%q,"name":%q}}`, remote, pods[0].Name),
		"create", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", remote, pods[0].Name), "-f", "-")
	if refused.Code == 0 || !strings.Contains(refused.String(), "violate the pod's disruption budget") {
		t.Errorf("an eviction that the budget forbids: %s", refused)
	}
	s.kubectl(t, "patch", "pdb", "drain", "-p", `{"spec":{"maxUnavailable":1}}`)
	s.allows(t, remote, "2 1")

	before, home := s.names(t, "part=there"), s.names(t, "part=here")
	drained := pods[0].Spec.NodeName
	t.Cleanup(func() { milan.Kubectl(t, "uncordon", drained) })
	openControlPlane(t, drained)
	least := followReady(t, milan, remote, map[string]string{"app": "drain"})
	if r := milan.TryKubectl("", "drain", drained, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app=drain", "--timeout=300s"); r.Code != 0 {
		t.Errorf("the drain does not end: %s", r)
	}
	env.Eventually(t, env.Hang, "all pods are Ready on another node of milan", func() (string, bool) {
		seen, good := "", 0
		for _, pod := range s.inMilan(t, remote) {
			seen += fmt.Sprintf("%s on %s, ready %t; ", pod.Name, pod.Spec.NodeName, ready(&pod))
			if ready(&pod) && pod.Spec.NodeName != drained {
				good++
			}
		}
		return seen, good == 3
	})
	if n, story := least(); n < 2 {
		t.Errorf("%d of rome's pods in milan were Ready at a time, want at least 2:\n%s", n, story)
	}
	s.kubectl(t, "rollout", "status", "deployment/there", "--timeout=120s")
	if after := s.names(t, "part=there"); after != before {
		t.Errorf("the pods of rome are others: %s, before %s", after, before)
	}
	if after := s.names(t, "part=here"); after != home {
		t.Errorf("the pod at home is another: %s, before %s", after, home)
	}
}

// TestStuck: milan's administrator drains the last node that takes pods of rome. The pod is not left Pending there: its controller replaces it in rome.
func TestStuck(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it drains a node for more than two minutes; use -long")
	}
	peered(t)
	s := play(t, "stuck")
	s.kubectl(t, "rollout", "status", "deployment/stuck", "--timeout=180s")
	before := strings.Fields(s.names(t, "app=stuck"))
	var pods corev1.PodList
	if err := milan.API.List(t.Context(), &pods, client.InNamespace(s.remote(t)), client.MatchingLabels{"app": "stuck"}); err != nil || len(pods.Items) != 1 {
		t.Fatalf("want one pod in milan, which the pod prefers: %v, %d of them; in rome: %s", err, len(pods.Items), before)
	}
	drained := pods.Items[0].Spec.NodeName
	t.Cleanup(func() { milan.Kubectl(t, "uncordon", drained) })
	milan.Kubectl(t, "drain", drained, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app=stuck", "--timeout=120s")
	s.kubectl(t, "wait", "pod/"+before[0], "--for=delete", "--timeout=600s")
	s.kubectl(t, "rollout", "status", "deployment/stuck", "--timeout=180s")
	if after := strings.Fields(s.names(t, "app=stuck")); len(after) != 3 || after[2] == before[2] {
		t.Errorf("the pod is %s, before %s; want another one, in rome", after, before)
	}
	if events := s.events(before[0]); !strings.Contains(events, "RemotePodStuck") {
		t.Errorf("no event states why the pod was deleted: %s", events)
	}
}

// allows waits until the budget in milan has a number, and allows so many evictions.
func (s scene) allows(t *testing.T, remote, want string) {
	t.Helper()
	env.Eventually(t, env.Hang, "the budget in milan is "+want, func() (string, bool) {
		r := milan.TryKubectl(
			"", "-n", remote, "get", "pdb", "drain", "-o",
			"jsonpath={.spec.minAvailable} {.status.disruptionsAllowed} {.metadata.generation} {.status.observedGeneration}",
		)
		fields := strings.Fields(r.Out)
		return r.String() + s.events("drain"), r.Code == 0 && len(fields) == 4 && fields[0]+" "+fields[1] == want && fields[2] == fields[3]
	})
}

func (s scene) inMilan(t *testing.T, remote string) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := milan.API.List(t.Context(), &pods, client.InNamespace(remote), client.MatchingLabels{"part": "there"}); err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

// names are the pods with a label in rome, with their UIDs and nodes.
func (s scene) names(t *testing.T, label string) string {
	t.Helper()
	return s.kubectl(
		t, "get", "pods", "-l", label, "--sort-by=.metadata.name", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.spec.nodeName}{"\n"}{end}`,
	)
}

// openControlPlane lets pods run on milan's control planes until the test ends, if no other node is left for those of a node.
func openControlPlane(t *testing.T, without string) {
	t.Helper()
	var nodes corev1.NodeList
	if err := milan.API.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		for _, taint := range node.Spec.Taints {
			if node.Name != without && taint.Key == controlPlane && taint.Effect == corev1.TaintEffectNoSchedule {
				milan.Kubectl(t, "taint", "node", node.Name, controlPlane+":NoSchedule-")
				t.Cleanup(func() {
					milan.Kubectl(t, "taint", "node", node.Name, fmt.Sprintf("%s=%s:NoSchedule", controlPlane, taint.Value), "--overwrite")
				})
			}
		}
	}
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return pod.DeletionTimestamp == nil
		}
	}
	return false
}

// followReady follows the pods of a namespace with a label, event by event. What it returns ends that, and returns how many were Ready when the
// fewest were, with what happened.
func followReady(t *testing.T, c *env.Cluster, namespace string, labels map[string]string) (least func() (int, string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var pods corev1.PodList
	selected := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels(labels)}
	if err := c.API.List(ctx, &pods, selected...); err != nil {
		t.Fatal(err)
	}
	now := map[string]bool{}
	for i := range pods.Items {
		if ready(&pods.Items[i]) {
			now[pods.Items[i].Name] = true
		}
	}
	w, err := c.API.Watch(
		ctx, &corev1.PodList{},
		append(selected, &client.ListOptions{Namespace: namespace, Raw: &metav1.ListOptions{ResourceVersion: pods.ResourceVersion}})...,
	)
	if err != nil {
		t.Fatal(err)
	}
	fewest, story := len(now), fmt.Sprintf("%d at first\n", len(now))
	var working sync.WaitGroup
	working.Go(func() {
		for event := range w.ResultChan() {
			pod, is := event.Object.(*corev1.Pod)
			if !is && ctx.Err() != nil { // how a watch that is ended reports that
				return
			}
			if !is {
				story += fmt.Sprintf("the watch failed: %v\n", event.Object)
				fewest = -1
				return
			}
			delete(now, pod.Name)
			if event.Type != watch.Deleted && ready(pod) {
				now[pod.Name] = true
			}
			fewest = min(fewest, len(now))
			story += fmt.Sprintf("%s %s on %s: %d\n", event.Type, pod.Name, pod.Spec.NodeName, len(now))
		}
		if ctx.Err() == nil {
			story, fewest = story+"the watch ended\n", -1
		}
	})
	return func() (int, string) {
		cancel()
		w.Stop()
		working.Wait()
		return fewest, story
	}
}
