// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/test/env"
)

// silence is longer than Kubernetes waits until it deletes the pods of a node that does not answer.
const silence = 10 * time.Minute

// placed gives the pods of a StatefulSet to virtual nodes (Exists) or to the others (DoesNotExist).
const placed = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: " +
	"liqo.io/type, operator: WHERE}]}]}}}"

// TestSilence: a provider does not answer for ten minutes, and every process of Liqo is restarted meanwhile. In a namespace that keeps its pods for that long,
// databases on both sides write on, on the same volumes, in the same pods. In another one, Kubernetes replaces what it would replace of any lost
// node, and nothing is left or runs twice when the provider is back.
func TestSilence(t *testing.T) {
	if !*long {
		t.Skip("NOT RUN: it takes eleven minutes; use -long")
	}
	installedAndPeered(t)
	s, replaced := offload(t), offload(t)
	s.kubectl(t, "patch", "namespaceoffloading", "offloading", "--type=merge", "-p", `{"spec":{"unreachableTolerationSeconds":3600}}`)
	for name, where := range map[string]string{"here": "DoesNotExist", "there": "Exists"} {
		s.apply(t, strings.NewReplacer("name: db}", "name: "+name+"}", "serviceName: db", "serviceName: "+name, "app: db", "app: "+name,
			"terminationGracePeriodSeconds: 1", strings.ReplaceAll(placed, "WHERE", where)+"\n      terminationGracePeriodSeconds: 1").Replace(writing))
	}
	s.running(t, "here-0", "there-0")
	objects := func() string {
		volumes := ""
		for _, claim := range []string{"data-here-0", "data-there-0"} {
			volume := s.volumeOf(t, claim)
			volumes += rome.Kubectl(t, "get", "persistentvolume", volume, "-o", `jsonpath={.metadata.uid} {.spec.persistentVolumeReclaimPolicy} {.status.phase}{"\n"}`)
		}
		const pods = `jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.spec.nodeName} {.status.containerStatuses[0].restartCount}{"\n"}{end}`
		return s.kubectl(t, "get", "pods", "-o", pods) + s.remoteKubectl(t, "get", "pods", "-o", pods) + volumes +
			s.remoteKubectl(t, "get", claimKindName, "-o", `jsonpath={range .items[*]}{.metadata.uid} {.spec.volumeName}{"\n"}{end}`)
	}
	before := objects()
	lost := replacedByKubernetes(t, replaced)

	clusters.Do(t, "fault", "partition", rome.Name, milan.Name)
	heal := func() { clusters.Do(t, "fault", "heal", rome.Name, milan.Name) }
	t.Cleanup(heal)
	restarted := rome.KillAll(t) + milan.KillAll(t)
	<-time.After(silence) // the fault
	if now, err := rome.VirtualNode(milan); err != nil {
		t.Error(err)
	} else if ready, _ := env.Readiness(now); ready == "True" {
		t.Error("the virtual node is Ready while its provider does not answer")
	}
	lost.replaced(t)
	heal()
	rome.NodeReady(t, milan)
	lost.settled(t)
	s.running(t, "here-0", "there-0")
	if after := objects(); after != before {
		t.Errorf("pods and volumes are\n%s\nbefore:\n%s", after, before)
	}
	for _, pod := range []string{"here-0", "there-0"} {
		text := strings.TrimSpace(s.kubectl(t, "exec", pod, "--", "sh", "-c", `awk 'NR != $1 {print "gap", NR, $1; exit}' /data/log; tail -n 1 /data/log`))
		n, err := strconv.Atoi(text)
		if least := int(silence.Seconds()); err != nil || n < least {
			t.Errorf("pod %s has written %q, want more than %d numbers without a gap", pod, text, least)
		}
	}
	clusters.Measure(fmt.Sprintf("provider silent for %v, %d processes killed", silence, restarted), "no pod and no volume changed")
}

// lostPods are pods of a provider that stops to answer, in a namespace that does not keep them.
type lostPods struct {
	in     namespace
	before map[string]string // names by UID
}

// workloads prefer the provider; the StatefulSet runs there only.
const workloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: POD}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: one}
spec: {serviceName: one, selector: {matchLabels: {app: one}}, template: {metadata: {labels: {app: one}}, spec: THERE}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: long}
spec: {template: {metadata: {labels: {app: long}}, spec: ENDING}}
`

func replacedByKubernetes(t *testing.T, in namespace) *lostPods {
	t.Helper()
	const container = `terminationGracePeriodSeconds: 1, containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, ` +
		`command: [sh, -c, "trap exit TERM; while true; do sleep 0.1; done"]}]`
	const terms = `matchExpressions: [{key: liqo.io/type, operator: Exists}]`
	const prefers = `affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference: {` + terms + `}}]}}`
	const requires = `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{` + terms + `}]}}}`
	in.apply(t, strings.NewReplacer(
		"POD", "{"+container+", "+prefers+"}", "THERE", "{"+container+", "+requires+"}", "ENDING",
		"{restartPolicy: Never, "+container+", "+prefers+"}",
	).Replace(workloads))
	lost := &lostPods{in: in, before: map[string]string{}}
	env.Eventually(t, env.Hang, "four pods run at the provider", func() (string, bool) {
		pods := lost.pods(t)
		clear(lost.before)
		for _, pod := range pods {
			if pod.Spec.NodeName == "liqo-"+milan.Name && pod.Status.Phase == corev1.PodRunning {
				lost.before[string(pod.UID)] = pod.Name
			}
		}
		return fmt.Sprint(lost.before), len(lost.before) == 4 && len(pods) == 4
	})
	return lost
}

func (l *lostPods) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var all corev1.PodList
	if err := json.Unmarshal([]byte(l.in.kubectl(t, "get", "pods", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// replaced checks what Kubernetes did about pods of a node that it lost: they are being deleted, and have successors except that of the StatefulSet.
func (l *lostPods) replaced(t *testing.T) {
	t.Helper()
	terminating, successors := map[string]bool{}, map[string]int{}
	for _, pod := range l.pods(t) {
		switch {
		case l.before[string(pod.UID)] == "":
			if pod.Status.Phase == corev1.PodRunning {
				successors[pod.Labels["app"]]++
			}
		case pod.DeletionTimestamp != nil:
			terminating[pod.Name] = true
		default:
			t.Errorf("pod %s is still expected to run on the lost node", pod.Name)
		}
	}
	if want := map[string]int{"web": 2, "long": 1}; !maps.Equal(successors, want) || len(terminating) != 4 {
		t.Errorf("while the provider is lost, successors run: %v, want %v; Terminating: %v, want all 4", successors, want, terminating)
	}
}

// settled checks that the lost pods have ended on both sides, and that each workload has what it wants.
func (l *lostPods) settled(t *testing.T) {
	t.Helper()
	env.Eventually(t, 3*env.Hang, "the lost pods have ended, and their workloads are complete", func() (string, bool) {
		left, running, there := 0, map[string]int{}, []string{}
		for _, pod := range l.pods(t) {
			if l.before[string(pod.UID)] != "" {
				left++
			} else if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				running[pod.Labels["app"]]++
				if pod.Spec.NodeName == "liqo-"+milan.Name {
					there = append(there, pod.Name)
				}
			}
		}
		remote := strings.Fields(l.in.remoteKubectl(t, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}"))
		slices.Sort(there)
		slices.Sort(remote)
		state := fmt.Sprintf("%d left, running %v, at the provider %v, expected there %v", left, running, remote, there)
		return state, left == 0 && maps.Equal(running, map[string]int{"web": 2, "one": 1, "long": 1}) && slices.Equal(remote, there)
	})
}
