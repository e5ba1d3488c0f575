// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/recorder"
)

const (
	namespace   = "faults"
	virtualNode = "liqo-milan"

	deployments, jobs = 6, 4
)

// podCount is the number of desired pods: *each per Deployment and Job. The containers of one Job end once and request a restart.
func podCount() int { return (deployments + jobs) * *each }

// connected makes rome a consumer of milan, unless it is one already.
func connected(t *testing.T) {
	t.Helper()
	// After the loss of one node the pods of the other one must not be affected.
	_ = milan.TryKubectl("", "taint", "nodes", "--all", "node-role.kubernetes.io/control-plane-")
	if rome.TryKubectl("", "get", "node", virtualNode).Code != 0 {
		for _, c := range []*env.Cluster{rome, milan} {
			c.Liqoctl(t, "install", "--cluster-name", c.Name)
		}
		rome.Peer(t, milan)
	}
	if result := clusters.Playground("load", filepath.Join(clusters.Bin, "stamp-image.tar"), milan.Name); result.Code != 0 {
		t.Fatal(result)
	}
	rome.Kubectl(t, "wait", "node", virtualNode, "--for=condition=Ready", "--timeout=90s")
}

func offloaded(t *testing.T) {
	t.Helper()
	if rome.TryKubectl("", "get", "namespace", namespace).Code == 0 {
		cleanUp(t) // after an earlier run
	}
	rome.Kubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { cleanUp(t) })
	rome.Liqoctl(t, "offload", "namespace", namespace, "--pod-offloading-strategy", "Remote")
	// The laws of this test are about pods that continue where they are, so the namespace does not have them replaced after five minutes without their provider.
	rome.Kubectl(t, "-n", namespace, "patch", "namespaceoffloading", "offloading", "--type=merge", "-p", `{"spec":{"unreachableTolerationSeconds":3600}}`)
}

func cleanUp(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"-n", namespace, "delete", "deployments,jobs", "--all", "--timeout=300s"},
		{"-n", namespace, "delete", "pods", "--all", "--timeout=300s"},
	} {
		if result := rome.TryKubectl("", args...); result.Code != 0 {
			t.Error(result)
		}
	}
	if result := rome.TryLiqoctl("unoffload", "namespace", namespace); result.Code != 0 {
		t.Error(result)
	}
	rome.Kubectl(t, "delete", "namespace", namespace, "--timeout=300s")
}

func deployment(name string) string {
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:%[4]s`, name, namespace, *each, recorder.Pod("Always", "", name == "web-0"))
}

func job(name, policy, args string) string {
	return fmt.Sprintf(`---
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  completions: %[3]d
  parallelism: %[3]d
  completionMode: Indexed
  backoffLimit: 200
  template:
    metadata: {labels: {app: %[1]s}}
    spec:%[4]s`, name, namespace, *each, recorder.Pod(policy, args, name == "later"))
}

// createPods creates 200 pods. When the first cause starts, one Job has finished, and every container of another has been restarted once.
// The pods of the other two Jobs end one after the other during the causes.
func createPods(t *testing.T) {
	t.Helper()
	start := time.Now()
	all := []string{
		job("finished", "Never", `"--for=3s"`), job("again", "OnFailure", `"--once-again=/own/once", "--for=4s"`),
	}
	for i := range deployments {
		all = append(all, deployment(fmt.Sprintf("web-%d", i)))
	}
	all = append(all, job("soon", "Never", `"--for=1$(JOB_COMPLETION_INDEX)5s"`), job("later", "OnFailure", `"--for=$(JOB_COMPLETION_INDEX)m50s"`))
	// Not all at once: the start of 200 pods on two cores is not the subject of this test.
	for i, manifest := range all {
		rome.Apply(t, manifest)
		running(t, (i+1)**each)
	}
	clusters.Measure(fmt.Sprint(podCount(), " pods"), "run or have run after %.0f s", time.Since(start).Seconds())
}

// running waits until as many pods as wanted run, or have succeeded if they belong to a Job that ends.
func running(t *testing.T, want int) {
	t.Helper()
	env.Eventually(t, 3*time.Minute, fmt.Sprintf("%d pods run or have run", want), func() (string, bool) {
		result := rome.TryKubectl("", "-n", namespace, "get", "pods", "-o",
			`jsonpath={range .items[*]}{.metadata.labels.app} {.status.phase} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		count, sum := map[string]int{}, 0
		for line := range strings.Lines(result.Out) {
			words := strings.Fields(line)
			switch {
			case len(words) < 2:
			case words[1] == "Succeeded", len(words) == 3 && words[2] == "True" && words[0] != "finished" && words[0] != "again":
				count[words[0]]++
				sum++
			}
		}
		if sum < want {
			<-time.After(500 * time.Millisecond) // polls slowly: each answer lists 200 pods
		}
		return fmt.Sprint(count, " ", result.Err), sum >= want
	})
}
