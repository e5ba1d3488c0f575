// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
)

// habitsDeployment prefers milan: its pods can move to rome.
const habitsDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {matchExpressions: [{key: liqo.io/type, operator: Exists}]}}]}}
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: playground.local/tools:1
        imagePullPolicy: Never
        command: [sh, -c, "COMMAND"]
        resources: {requests: {cpu: 10m}, limits: {cpu: 100m}}
`

const idle = "trap exit TERM; while true; do sleep 0.1; done"

// deployed offloads a namespace with the Deployment, whose pods all run in milan.
func deployed(t *testing.T, command string, replicas int) namespace {
	t.Helper()
	s := offload(t)
	s.apply(t, strings.NewReplacer("COMMAND", command, "replicas: 2", fmt.Sprint("replicas: ", replicas)).Replace(habitsDeployment))
	s.kubectl(t, "rollout", "status", "deployment/web", timeout)
	if nodes := nodesOf(t, s, replicas); nodes[virtualNode] != replicas {
		t.Fatalf("pods run on %v, want all on %s", nodes, virtualNode)
	}
	return s
}

// TestHabits: what administrators do with pods and nodes works with offloaded pods and their node. It has the lines of the table in docs/offloading.md that no
// other test has.
func TestHabits(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it waits for metrics and cordons the virtual node; use -long")
	}
	installedAndPeered(t)
	for _, one := range []struct {
		name string
		test func(*testing.T)
	}{
		// One after the other: "drain" cordons the node on which the others start pods.
		{"describe", describe},
		{"rollout", rollout},
		{"wait", waits},
		{"debug copy", debugCopy},
		{"debug node", debugNode},
		{"eviction", eviction},
		{"drain", drain},
		{"autoscale", autoscale},
	} {
		t.Run(one.name, one.test)
	}
}

func describe(t *testing.T) {
	s := deployed(t, idle, 1)
	output := s.kubectl(t, "describe", "pods", "-l", "app=web")
	for _, want := range []string{"Node:", virtualNode + "/", "Status:", "Running", "Ready:", "True", "Container ID:", "Successfully assigned"} {
		if !strings.Contains(output, want) {
			t.Errorf("kubectl describe pod lacks %q:\n%s", want, output)
		}
	}
	// A kubelet's ordinary events stay at the provider.
	if strings.Contains(output, "Started container") || strings.Contains(output, "Pulled") {
		t.Errorf("kubectl describe pod shows ordinary events of the provider's kubelet, and docs/offloading.md denies that:\n%s", output)
	}
	name := s.kubectl(t, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")
	if output = rome.Kubectl(t, "describe", "node", virtualNode); !strings.Contains(output, "Allocated resources:") || !strings.Contains(output, name) {
		t.Errorf("kubectl describe node does not list pod %s and what is allocated:\n%s", name, output)
	}
}

func rollout(t *testing.T) {
	s := deployed(t, idle, 2)
	step := func(args ...string) {
		t.Helper()
		s.kubectl(t, args...)
		s.kubectl(t, "rollout", "status", "deployment/web", timeout)
		if nodes := nodesOf(t, s, 2); nodes[virtualNode] != 2 {
			t.Errorf("%v: pods run on %v", args, nodes)
		}
	}
	step("set", "env", "deployment/web", "VERSION=2")
	step("rollout", "restart", "deployment/web")
	step("rollout", "undo", "deployment/web", "--to-revision=1")
	if value := s.kubectl(t, "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].env[0].value}"); value != "" {
		t.Errorf("after rollout undo, VERSION is %q", value)
	}
	if output := s.kubectl(t, "rollout", "history", "deployment/web"); !strings.Contains(output, "\n4 ") {
		t.Errorf("kubectl rollout history:\n%s", output)
	}
}

func waits(t *testing.T) {
	s := offload(t)
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "web"))
	s.kubectl(t, "wait", "pod/web", "--for=condition=Ready", timeout)
	s.kubectl(t, "wait", "pod/web", "--for=jsonpath={.status.phase}=Running", timeout)
	s.kubectl(t, "delete", "pod", "web", "--wait=false")
	s.kubectl(t, "wait", "pod/web", "--for=delete", timeout)
	if found := s.inMilan(t, podKind, "web"); found != nil {
		t.Error("the pod is deleted in rome, and still there in milan")
	}
}

// debugCopy: the provider refuses to a copy what it refuses to each pod. The profile "baseline" of kubectl asks for nothing of that.
func debugCopy(t *testing.T) {
	s := offload(t)
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "web"))
	s.running(t, "web")
	debug := func(name string, flags ...string) {
		t.Helper()
		args := append([]string{
			"debug", "web", "--copy-to=" + name, "--image=" + env.ToolsImage, "--image-pull-policy=Never", "--container=debugger",
			"--share-processes", "--attach=false",
		}, flags...)
		s.kubectl(t, append(args, "--", "sleep", "infinity")...)
	}
	debug("refused")
	s.wantEvent(t, "Pod", "refused", "FailedReflection", "SYS_PTRACE", "baseline")
	debug("copy", "--profile=baseline")
	s.running(t, "copy")
	s.wantRemote(t, podKind, "copy", "{spec: {shareProcessNamespace: true}, status: {phase: Running}}")
	if output := s.kubectl(t, "exec", "copy", "-c", "debugger", "--", "ps"); !strings.Contains(output, "sleep") {
		t.Errorf("the copy does not show the processes: %s", output)
	}
}

// debugNode: the virtual node is no machine, and the provider admits no pod of a peer to the files of its nodes. An event on the pod reports that.
func debugNode(t *testing.T) {
	s := offload(t)
	result := rome.TryKubectl(
		"", "-n", s.name, "debug", "node/"+virtualNode, "--image="+env.ToolsImage, "--image-pull-policy=Never", "--attach=false", "--", "sleep",
		"infinity",
	)
	if result.Code != 0 {
		t.Fatal(result)
	}
	pod := s.kubectl(t, "get", "pods", "-o", "jsonpath={.items[0].metadata.name}")
	s.wantEvent(t, "Pod", pod, "FailedReflection", "hostPath")
	s.kubectl(t, "delete", "pod", pod, timeout)
}

const budget = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}}"

// evict requests the eviction of a pod, as kubectl drain does.
func (s namespace) evict(pod string) execution.Result {
	return rome.TryKubectl(fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q, "namespace": %q}}`, pod, s.name),
		"create", "--raw", "/api/v1/namespaces/"+s.name+"/pods/"+pod+"/eviction", "-f", "-")
}

func eviction(t *testing.T) {
	s := deployed(t, idle, 2)
	s.apply(t, budget)
	s.wantLocal(t, "policy/v1/PodDisruptionBudget", "web", "{status: {currentHealthy: 2, disruptionsAllowed: 0}}")
	pod := s.kubectl(t, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")
	if result := s.evict(pod); result.Code == 0 || !strings.Contains(result.String(), "disruption budget") {
		t.Errorf("the eviction that the budget forbids: %s", result)
	}
	s.kubectl(t, "scale", "deployment/web", "--replicas=3")
	s.wantLocal(t, "policy/v1/PodDisruptionBudget", "web", "{status: {currentHealthy: 3, disruptionsAllowed: 1}}")
	if result := s.evict(pod); result.Code != 0 {
		t.Errorf("the eviction that the budget allows: %s", result)
	}
	s.kubectl(t, "wait", "pod/"+pod, "--for=delete", timeout)
	if found := s.inMilan(t, podKind, pod); found != nil {
		t.Errorf("pod %s was evicted in rome, and is still in milan", pod)
	}
}

// drain: the pods move to rome, and none starts in milan while the node is cordoned.
func drain(t *testing.T) {
	s := deployed(t, idle, 2)
	s.apply(t, strings.Replace(budget, "minAvailable: 2", "minAvailable: 1", 1))
	s.wantLocal(t, "policy/v1/PodDisruptionBudget", "web", "{status: {disruptionsAllowed: 1}}")
	t.Cleanup(func() { rome.Kubectl(t, "uncordon", virtualNode) })
	rome.Kubectl(t, "drain", virtualNode, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app=web", timeout)
	if nodes := nodesOf(t, s, 2); nodes[virtualNode] != 0 {
		t.Errorf("after the drain, pods run on %v", nodes)
	}
	if output := s.remoteKubectl(t, "get", "pods", "-o", "name"); output != "" {
		t.Errorf("after the drain, milan has %s", output)
	}
	s.kubectl(t, "rollout", "restart", "deployment/web")
	s.kubectl(t, "rollout", "status", "deployment/web", timeout)
	if nodes := nodesOf(t, s, 2); nodes[virtualNode] != 0 {
		t.Errorf("while the node is cordoned, pods start on %v", nodes)
	}
	rome.Kubectl(t, "uncordon", virtualNode)
	s.kubectl(t, "rollout", "restart", "deployment/web")
	s.kubectl(t, "rollout", "status", "deployment/web", timeout)
	if nodes := nodesOf(t, s, 2); nodes[virtualNode] != 2 {
		t.Errorf("after uncordon, pods start on %v", nodes)
	}
}

// autoscale: the metrics of pods in milan scale their Deployment in rome.
func autoscale(t *testing.T) {
	s := deployed(t, "while true; do :; done", 1)
	s.kubectl(t, "autoscale", "deployment", "web", "--min=1", "--max=2", "--cpu-percent=50")
	// Kubernetes collects metrics every 15 s, and trusts those of a new pod after some more.
	s.wantLocal(t, "autoscaling/v2/HorizontalPodAutoscaler", "web", "{status: {desiredReplicas: 2}}")
	if nodes := nodesOf(t, s, 2); nodes[virtualNode] != 2 {
		t.Errorf("pods run on %v", nodes)
	}
}
