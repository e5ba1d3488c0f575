// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/fields"
)

const (
	// statusTarget is the target for the time until rome shows a change of a pod in milan. The test reports a missed target, because the time
	// depends on the load of the machine as well.
	statusTarget = time.Second
	// statusOutage is the time from which a user calls a missing status an outage.
	statusOutage = 30 * time.Second
)

// measureStatus measures three times how long rome takes to show a change in milan.
func measureStatus(t *testing.T, what string, measure func(i int) (changed, shown time.Time)) {
	t.Helper()
	for i := range 3 {
		changed, shown := measure(i)
		took, remark := shown.Sub(changed), ""
		if took > statusTarget {
			remark = ", missed"
		}
		clusters.Measure(what, "%.0f ms (target %v%s)", float64(took.Microseconds())/1000, statusTarget, remark)
		if took > statusOutage {
			t.Errorf("%s: %v", what, took)
		}
	}
}

// TestStatusReady: a pod that is Ready in milan becomes Ready in rome.
func TestStatusReady(t *testing.T) {
	together(t)
	s := offload(t)
	ready := func(object client.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && env.Condition(pod, corev1.PodReady) == corev1.ConditionTrue
	}
	measureStatus(t, "pod Ready in milan to Ready in rome", func(i int) (time.Time, time.Time) {
		name := fmt.Sprintf("p%d", i)
		is := func(object client.Object) bool { return object.GetName() == name && ready(object) }
		local, remote := rome.Watch(t, &corev1.PodList{}, s.name, is), milan.Watch(t, &corev1.PodList{}, s.remote, is)
		s.apply(t, strings.ReplaceAll(plainPod, "NAME", name))
		return remote.Wait(t, env.Hang, "Ready in milan"), local.Wait(t, env.Hang, "Ready in rome")
	})
}

// TestStatusRefused: an error of milan's API server, or of a kubelet in milan, becomes an event of the pod in rome.
func TestStatusRefused(t *testing.T) {
	together(t)
	s := offload(t)
	s.remoteKubectl(t, "create", "quota", "none", "--hard=pods=0")
	wantObject(t, milan, "v1/ResourceQuota", s.remote, "none", "{status: {hard: {pods: '0'}, used: {pods: '0'}}}") // the quota is enforced from then on
	measureStatus(t, "event of a refusal in milan to the same in rome", func(i int) (time.Time, time.Time) {
		name := fmt.Sprintf("p%d", i)
		refused := func(object client.Object) bool {
			event, ok := object.(*corev1.Event)
			return ok && event.InvolvedObject.Name == name && event.Type == corev1.EventTypeWarning && strings.Contains(event.Message, "exceeded quota")
		}
		local, remote := rome.Watch(t, &corev1.EventList{}, s.name, refused), milan.Watch(t, &corev1.EventList{}, s.remote, refused)
		s.apply(t, strings.ReplaceAll(plainPod, "NAME", name))
		return remote.Wait(t, env.Hang, "milan refuses"), local.Wait(t, env.Hang, "rome has the event")
	})
	s.wantLocal(t, podKind, "p0", "{status: {phase: Pending}}")
	s.remoteKubectl(t, "delete", "quota", "none")
	env.Eventually(t, env.Hang, "the pods run without the quota", func() (string, bool) {
		output := s.kubectl(t, "get", "pods", "--no-headers")
		return output, strings.Count(output, "Running") == 3
	})
	measureStatus(t, "event of a kubelet in milan to the same in rome", func(i int) (time.Time, time.Time) {
		name := fmt.Sprintf("bad%d", i)
		bad := func(object client.Object) bool {
			event, ok := object.(*corev1.Event)
			return ok && event.InvolvedObject.Name == name && strings.Contains(event.Message, "is not present with pull policy of Never")
		}
		local, remote := rome.Watch(t, &corev1.EventList{}, s.name, bad), milan.Watch(t, &corev1.EventList{}, s.remote, bad)
		s.apply(t, strings.ReplaceAll(strings.ReplaceAll(plainPod, "NAME", name), env.ToolsImage, "playground.local/missing:1"))
		return remote.Wait(t, env.Hang, "milan's kubelet reports an error"), local.Wait(t, env.Hang, "rome has the event")
	})
	if output := s.kubectl(t, "describe", "pod", "bad0"); !strings.Contains(output, "liqo-pod-reflection") || !strings.Contains(output, "pull policy of Never") {
		t.Errorf("kubectl describe pod: %s", output)
	}
}

// TestStatusOverTime: what rome shows of pods that start, end and wait several times. None of it is measured.
func TestStatusOverTime(t *testing.T) {
	together(t)
	for name, step := range map[string]func(*testing.T){"restarts": statusRestarts, "jobs": statusJobs, "not offloaded": statusNotOffloaded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step(t)
		})
	}
}

// statusRestarts: rome shows restarts of a container, and counts the recreation of the remote pod as a restart.
func statusRestarts(t *testing.T) {
	s := offload(t, "--pod-offloading-strategy", "Remote")
	s.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: crashing}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "playground.local/tools:1", imagePullPolicy: Never, command: [sh, -c, "exit 5"]}]
`)
	s.wantRemote(t, podKind, "crashing", "{}")
	// A kubelet reports CrashLoopBackOff when it syncs the pod again, which can be just before the next start. An annotation triggers a sync.
	var count int64
	syncs := 0
	env.Eventually(t, env.Hang, "rome shows the crashes as milan does", func() (string, bool) {
		syncs++
		s.remoteKubectl(t, "annotate", "--overwrite", "pod", "crashing", fmt.Sprintf("test/syncs=%d", syncs))
		remote, local := s.inMilan(t, podKind, "crashing"), s.local(t, podKind, "crashing")
		count, _ = fields.At(local.Object, "status.containerStatuses.0.restartCount").(int64)
		differ := fields.Differences(local.Object, "status: {phase: Running, containerStatuses: [{ready: false, restartCount: '*', state: "+
			"{waiting: {reason: CrashLoopBackOff, message: '*'}}, lastState: {terminated: {exitCode: 5, reason: Error}}}]}")
		if was := fields.At(remote.Object, "status.containerStatuses.0.restartCount"); count == 0 || was != count {
			differ = append(differ, fmt.Sprintf("%d restarts, in milan %v", count, was))
		}
		if line := s.kubectl(t, "get", "pod", "crashing", "--no-headers"); !strings.Contains(line, "CrashLoopBackOff") {
			differ = append(differ, line)
		}
		return strings.Join(differ, "\n            "), len(differ) == 0
	})
	s.remoteKubectl(t, "delete", "pod", "crashing", "--wait=false")
	env.Eventually(t, env.Hang, "the recreated pod counts as a restart", func() (string, bool) {
		is, _ := fields.At(s.local(t, podKind, "crashing").Object, "status.containerStatuses.0.restartCount").(int64)
		return fmt.Sprintf("%d, was %d", is, count), is > count
	})
}

// statusJobs: pods of a Job that has ended do not run again, even if their remote pods are deleted.
func statusJobs(t *testing.T) {
	s := offload(t, "--pod-offloading-strategy", "Remote")
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
	s.wantLocal(t, "batch/v1/Job", "works", "{status: {succeeded: 3, failed: null}}")
	s.kubectl(t, "wait", "--for=condition=Failed", "job/fails", timeout)
	pods := func() map[string]string {
		t.Helper()
		all, err := rome.Objects(podKind, s.name)
		if err != nil {
			t.Fatal(err)
		}
		phases := map[string]string{}
		for _, pod := range all {
			phases[pod.GetName()] = fmt.Sprintf("%v %v", pod.GetUID(), fields.At(pod.Object, "status.phase"))
		}
		return phases
	}
	before := pods()
	if len(before) != 5 {
		t.Errorf("pods are %v, want 3 that succeeded and 2 that failed", before)
	}
	if output := s.kubectl(t, "logs", "job/works"); output != "done" {
		t.Errorf("the log of the Job is %q", output)
	}
	// The deletion of the remote pods must not start them again. The later pod runs after the deletions have been processed.
	s.remoteKubectl(t, "delete", "pods", "--all")
	s.apply(t, strings.ReplaceAll(plainPod, "NAME", "later"))
	s.running(t, "later")
	for name := range before {
		if found := s.inMilan(t, podKind, name); found != nil {
			t.Errorf("pod %s of a Job that has ended exists again, %v", name, fields.At(found.Object, "status.phase"))
		}
	}
	after := pods()
	delete(after, "later")
	if inJSON(before) != inJSON(after) {
		t.Errorf("pods were %v and are %v", before, after)
	}
	s.wantLocal(t, "batch/v1/Job", "works", "{status: {succeeded: 3, failed: null, active: null}}")
	s.kubectl(t, "delete", "job", "works", "fails")
	env.Eventually(t, env.Hang, "no pod of a Job is left", func() (string, bool) {
		all, err := milan.Objects(shadowPodKind, s.remote)
		return fmt.Sprintf("%d ShadowPods, %v", len(all), err), err == nil && len(all) == 1 && len(pods()) == 1
	})
}

// statusNotOffloaded: a pod on the virtual node, in a namespace that is not offloaded, waits until it is.
func statusNotOffloaded(t *testing.T) {
	name := newNamespace(t)
	s := namespace{name: name}
	s.apply(t, strings.Replace(strings.ReplaceAll(plainPod, "NAME", "waits"), "spec:\n", "spec:\n  tolerations: [{operator: Exists}]\n", 1))
	s.wantLocal(t, podKind, "waits", "status: {phase: Pending, reason: OffloadingBackOff, message: '~.*liqoctl offload namespace.*'}")
	if line := s.kubectl(t, "get", "pod", "waits", "--no-headers"); !strings.Contains(line, "OffloadingBackOff") {
		t.Errorf("kubectl get pod: %s", line)
	}
	rome.Liqoctl(t, "offload", "namespace", name)
	s.running(t, "waits")
	s.wantLocal(t, podKind, "waits", "status: {phase: Running, reason: null, message: null}")
	rome.Liqoctl(t, "unoffload", "namespace", name)
	s.wantLocal(t, podKind, "waits", "status: {phase: Failed, reason: OffloadingAborted}")
	s.kubectl(t, "delete", "pod", "waits", timeout)
}
