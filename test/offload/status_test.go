// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
)

// statusBack is what rome learns of pods in milan, and how fast. It is measured, so nothing else runs beside.
func statusBack(t *testing.T) {
	t.Run("Ready", readyInTime)
	t.Run("refused in milan", refusedInTime)
	t.Run("restarts", restarts)
	t.Run("Jobs", jobs)
	t.Run("not offloaded", notOffloaded)
}

// inTime measures three times how long rome takes to learn of something in milan. The median counts: the machine of a test may stand still
// now and then.
func inTime(t *testing.T, what string, each func(i int) (there, here time.Time)) {
	t.Helper()
	var late []time.Duration
	for i := range 3 {
		there, here := each(i)
		clusters.Measure(what, "%.0f ms", float64(here.Sub(there).Microseconds())/1000)
		late = append(late, here.Sub(there))
	}
	slices.Sort(late)
	if late[1] > time.Second {
		t.Errorf("%s: %v, want at most 1 s", what, late)
	}
}

func readyInTime(t *testing.T) {
	s := offloaded(t)
	ready := func(object client.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && env.Condition(pod, corev1.PodReady) == corev1.ConditionTrue
	}
	inTime(t, "pod Ready in milan to Ready in rome", func(i int) (time.Time, time.Time) {
		name := fmt.Sprintf("p%d", i)
		is := func(object client.Object) bool { return object.GetName() == name && ready(object) }
		here, there := rome.Watch(t, &corev1.PodList{}, s.name, is), milan.Watch(t, &corev1.PodList{}, s.twin, is)
		s.apply(t, strings.ReplaceAll(plainPod, "NAME", name))
		return there.Wait(t, started, "Ready in milan"), here.Wait(t, started, "Ready in rome")
	})
}

// refusedInTime: what milan's API server says to a pod is on the pod in rome.
func refusedInTime(t *testing.T) {
	s := offloaded(t)
	s.milan(t, "create", "quota", "none", "--hard=pods=0")
	becomes(t, milan, "v1/ResourceQuota", s.twin, "none", "{status: {hard: {pods: '0'}, used: {pods: '0'}}}", soon) // it counts from then on
	inTime(t, "event of a refusal in milan to the same in rome", func(i int) (time.Time, time.Time) {
		name := fmt.Sprintf("p%d", i)
		refused := func(object client.Object) bool {
			event, ok := object.(*corev1.Event)
			return ok && event.InvolvedObject.Name == name && event.Type == corev1.EventTypeWarning && strings.Contains(event.Message, "exceeded quota")
		}
		here, there := rome.Watch(t, &corev1.EventList{}, s.name, refused), milan.Watch(t, &corev1.EventList{}, s.twin, refused)
		s.apply(t, strings.ReplaceAll(plainPod, "NAME", name))
		return there.Wait(t, started, "milan refuses"), here.Wait(t, started, "rome says so")
	})
	s.shows(t, podKind, "p0", "{status: {phase: Pending}}")
	s.milan(t, "delete", "quota", "none")
	env.Eventually(t, 2*started, "the pods run when they may", func() (string, bool) {
		said := s.kubectl(t, "get", "pods", "--no-headers")
		return said, strings.Count(said, "Running") == 3
	})
	inTime(t, "event of a kubelet in milan to the same in rome", func(i int) (time.Time, time.Time) {
		name := fmt.Sprintf("bad%d", i)
		bad := func(object client.Object) bool {
			event, ok := object.(*corev1.Event)
			return ok && event.InvolvedObject.Name == name && strings.Contains(event.Message, "is not present with pull policy of Never")
		}
		here, there := rome.Watch(t, &corev1.EventList{}, s.name, bad), milan.Watch(t, &corev1.EventList{}, s.twin, bad)
		s.apply(t, strings.ReplaceAll(strings.ReplaceAll(plainPod, "NAME", name), env.ToolsImage, "playground.local/nobodys:1"))
		return there.Wait(t, started, "milan's kubelet complains"), here.Wait(t, started, "rome says so")
	})
	if said := s.kubectl(t, "describe", "pod", "bad0"); !strings.Contains(said, "liqo-pod-reflection") || !strings.Contains(said, "pull policy of Never") {
		t.Errorf("kubectl describe pod: %s", said)
	}
}

func restarts(t *testing.T) {
	s := offloaded(t, "--pod-offloading-strategy", "Remote")
	s.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: crashing}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "exit 5"]}]
`)
	s.becomes(t, podKind, "crashing", "{}")
	// A kubelet says that it waits when it looks at the pod again: in the instant before the next start, if nothing makes it look before.
	var count int64
	looks := 0
	env.Eventually(t, started, "rome tells of the crashes as milan does", func() (string, bool) {
		looks++
		s.milan(t, "annotate", "--overwrite", "pod", "crashing", fmt.Sprintf("test/looks=%d", looks))
		there, here := s.there(t, podKind, "crashing"), s.here(t, podKind, "crashing")
		count, _ = env.At(here.Object, "status.containerStatuses.0.restartCount").(int64)
		differ := env.Differences(here.Object, "status: {phase: Running, containerStatuses: [{ready: false, restartCount: '*', state: {waiting: {reason: CrashLoopBackOff, message: '*'}}, lastState: {terminated: {exitCode: 5, reason: Error}}}]}")
		if was := env.At(there.Object, "status.containerStatuses.0.restartCount"); count == 0 || was != count {
			differ = append(differ, fmt.Sprintf("%d restarts, in milan %v", count, was))
		}
		if line := s.kubectl(t, "get", "pod", "crashing", "--no-headers"); !strings.Contains(line, "CrashLoopBackOff") {
			differ = append(differ, line)
		}
		return strings.Join(differ, "\n            "), len(differ) == 0
	})
	s.milan(t, "delete", "pod", "crashing", "--wait=false")
	env.Eventually(t, started, "the pod that was made anew counts as a restart", func() (string, bool) {
		is, _ := env.At(s.here(t, podKind, "crashing").Object, "status.containerStatuses.0.restartCount").(int64)
		return fmt.Sprintf("%d, was %d", is, count), is > count
	})
}

// jobs end once.
func jobs(t *testing.T) {
	s := offloaded(t, "--pod-offloading-strategy", "Remote")
	s.apply(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: works}
spec:
  completions: 3
  parallelism: 3
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "echo done"]}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: fails}
spec:
  backoffLimit: 1
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "exit 3"]}]}}
`)
	s.shows(t, "batch/v1/Job", "works", "{status: {succeeded: 3, failed: null}}")
	s.kubectl(t, "wait", "--for=condition=Failed", "job/fails", "--timeout=60s")
	pods := func() map[string]string {
		t.Helper()
		all, err := rome.Objects(podKind, s.name)
		if err != nil {
			t.Fatal(err)
		}
		phases := map[string]string{}
		for _, pod := range all {
			phases[pod.GetName()] = fmt.Sprintf("%v %v", pod.GetUID(), env.At(pod.Object, "status.phase"))
		}
		return phases
	}
	before := pods()
	if len(before) != 5 {
		t.Errorf("pods are %v, want 3 that succeeded and 2 that failed", before)
	}
	if said := s.kubectl(t, "logs", "job/works"); said != "done" {
		t.Errorf("the log of the Job is %q", said)
	}
	// Whoever takes the pods away in milan does not make them run again. A pod that comes after them comes when that has been looked at.
	s.milan(t, "delete", "pods", "--all")
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "later"))
	s.running(t, "later")
	for name := range before {
		if found := s.there(t, podKind, name); found != nil {
			t.Errorf("pod %s of a Job that has ended is there again, %v", name, env.At(found.Object, "status.phase"))
		}
	}
	after := pods()
	delete(after, "later")
	if inJSON(before) != inJSON(after) {
		t.Errorf("pods were %v and are %v", before, after)
	}
	s.shows(t, "batch/v1/Job", "works", "{status: {succeeded: 3, failed: null, active: null}}")
	s.kubectl(t, "delete", "job", "works", "fails")
	env.Eventually(t, started, "no pod of a Job is left", func() (string, bool) {
		all, err := milan.Objects(shadowPodKind, s.twin)
		return fmt.Sprintf("%d ShadowPods, %v", len(all), err), err == nil && len(all) == 1 && len(pods()) == 1
	})
}

// notOffloaded: a pod on the virtual node, in a namespace that is not offloaded, waits until it is.
func notOffloaded(t *testing.T) {
	name := newNamespace(t)
	s := space{name: name}
	s.apply(t, strings.Replace(strings.ReplaceAll(plainPod, "NAME", "waits"), "spec:\n", "spec:\n  tolerations: [{operator: Exists}]\n", 1))
	s.shows(t, podKind, "waits", "status: {phase: Pending, reason: OffloadingBackOff, message: '~.*liqoctl offload namespace.*'}")
	if line := s.kubectl(t, "get", "pod", "waits", "--no-headers"); !strings.Contains(line, "OffloadingBackOff") {
		t.Errorf("kubectl get pod: %s", line)
	}
	rome.Liqoctl(t, "offload", "namespace", name)
	s.running(t, "waits")
	s.shows(t, podKind, "waits", "status: {phase: Running, reason: null, message: null}")
	rome.Liqoctl(t, "unoffload", "namespace", name)
	s.shows(t, podKind, "waits", "status: {phase: Failed, reason: OffloadingAborted}")
	s.kubectl(t, "delete", "pod", "waits", "--timeout=30s")
}
