// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
)

const (
	namespace   = "faults"
	virtualNode = "liqo-milan"

	deployments, jobs = 6, 4
)

// wished is how many pods there are, one group for each Deployment and Job; as many containers as a group end once in order to be started again.
func wished() int { return (deployments + jobs) * *each }

// connected makes rome a consumer of milan, if it is none.
func connected(t *testing.T) {
	t.Helper()
	// So that losing one node leaves another one, where nothing may happen.
	_ = milan.TryKubectl("", "taint", "nodes", "--all", "node-role.kubernetes.io/control-plane-")
	if rome.TryKubectl("", "get", "node", virtualNode).Code != 0 {
		for _, c := range []*env.Cluster{rome, milan} {
			c.Liqoctl(t, "install", "--cluster-name", c.Name)
		}
		rome.Peer(t, milan)
	}
	if said := clusters.Playground("load", filepath.Join(clusters.Bin, "stamp-image.tar"), milan.Name); said.Code != 0 {
		t.Fatal(said)
	}
	rome.Kubectl(t, "wait", "node", virtualNode, "--for=condition=Ready", "--timeout=90s")
}

func offloaded(t *testing.T) {
	t.Helper()
	if rome.TryKubectl("", "get", "namespace", namespace).Code == 0 {
		takeAway(t) // of a run before
	}
	rome.Kubectl(t, "create", "namespace", namespace)
	t.Cleanup(func() { takeAway(t) })
	rome.Liqoctl(t, "offload", "namespace", namespace, "--pod-offloading-strategy", "Remote")
}

func takeAway(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"-n", namespace, "delete", "deployments,jobs", "--all", "--timeout=300s"},
		{"-n", namespace, "delete", "pods", "--all", "--timeout=300s"},
	} {
		if said := rome.TryKubectl("", args...); said.Code != 0 {
			t.Error(said)
		}
	}
	if said := rome.TryLiqoctl("unoffload", "namespace", namespace); said.Code != 0 {
		t.Error(said)
	}
	rome.Kubectl(t, "delete", "namespace", namespace, "--timeout=300s")
}

// pod is the template of all pods: what they say of themselves is proof of what ran. Some have tokens, which have to be refreshed.
func pod(policy, args string, tokens bool) string {
	return fmt.Sprintf(`
      restartPolicy: %s
      automountServiceAccountToken: %t
      terminationGracePeriodSeconds: 2
      volumes: [{name: own, emptyDir: {}}]
      containers:
      - name: main
        image: "liqo.io/stamp:dev"
        imagePullPolicy: Never
        args: [%s]
        volumeMounts: [{name: own, mountPath: /own}]
        env:
        - {name: FOR_POD, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['virtualkubelet.liqo.io/fence']"}}}
`, policy, tokens, args)
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
    spec:%[4]s`, name, namespace, *each, pod("Always", "", name == "web-0"))
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
    spec:%[4]s`, name, namespace, *each, pod(policy, args, name == "later"))
}

// wish brings 200 pods up. Of the Jobs one has finished when the first cause comes; of one every container has ended once and was started
// again; of the others pods end one after the other while causes come and go.
func wish(t *testing.T) {
	t.Helper()
	began := time.Now()
	all := []string{
		job("finished", "Never", `"--for=3s"`), job("again", "OnFailure", `"--once-again=/own/once", "--for=4s"`),
	}
	for i := range deployments {
		all = append(all, deployment(fmt.Sprintf("web-%d", i)))
	}
	all = append(all, job("soon", "Never", `"--for=1$(JOB_COMPLETION_INDEX)5s"`), job("later", "OnFailure", `"--for=$(JOB_COMPLETION_INDEX)m50s"`))
	// Not all at once: what is measured is not how two cores start 200 pods.
	for i, manifest := range all {
		rome.Apply(t, manifest)
		asWished(t, (i+1)**each)
	}
	clusters.Measure(fmt.Sprint(wished(), " pods"), "as wished after %.0f s", time.Since(began).Seconds())
}

// asWished waits until so many pods run or have run as they should.
func asWished(t *testing.T, want int) {
	t.Helper()
	env.Eventually(t, 3*time.Minute, fmt.Sprintf("%d pods run or have run", want), func() (string, bool) {
		said := rome.TryKubectl("", "-n", namespace, "get", "pods", "-o",
			`jsonpath={range .items[*]}{.metadata.labels.app} {.status.phase} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		count, sum := map[string]int{}, 0
		for line := range strings.Lines(said.Out) {
			words := strings.Fields(line)
			switch {
			case len(words) < 2:
			case words[1] == "Succeeded", len(words) == 3 && words[2] == "True" && words[0] != "finished" && words[0] != "again":
				count[words[0]]++
				sum++
			}
		}
		if sum < want {
			<-time.After(500 * time.Millisecond) // each answer is 200 pods long
		}
		return fmt.Sprint(count, " ", said.Err), sum >= want
	})
}
