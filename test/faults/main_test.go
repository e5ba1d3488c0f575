// SPDX-License-Identifier: Apache-2.0

// Package faults causes faults while 200 offloaded pods of Deployments and Jobs run, and checks the history of these pods against the laws
// of offloading: no running pod is restarted or deleted, a finished pod does not run again, no pod runs twice, and the clusters agree
// within 30 s after the cause has ended.
//
// It knows what package env knows. Command history records and checks all changes, so that events between two checks of a test count as
// well. The package brings the playground's scenario quick-start up and takes it down. Run it with: make faults e2e, or alone, with all
// causes at their full length: go test ./test/faults -v -long -timeout 90m. Jumps of the clock run only if they are named, because they
// affect the whole machine: -causes "clock jumps"
package faults

import (
	"flag"
	"strconv"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/recorder"
)

var (
	keep = flag.Bool("keep", false, "use the clusters that are up, and leave them up (for work on these tests)")
	long = flag.Bool("long", false, "all causes that affect only the clusters, at the length that the targets define")
	only = flag.String("causes", "", "comma separated parts of names of causes; empty: those that are quick, or all with -long")
	each = flag.Int("each", 20, "pods of each of ten Deployments and Jobs; fewer prove less, but suit a machine that other work shares")
	kept = flag.String("history", "", "file that keeps the history; empty: a temporary one")

	clusters    *env.Env
	rome, milan *env.Cluster // consumer and provider
)

func TestMain(m *testing.M) {
	env.Main(m, "quick-start", keep, func(e *env.Env) error {
		clusters, rome, milan = e, e.Clusters[0], e.Clusters[1]
		return recorder.Ready(e)
	})
}

// outage is the longest time for which the clusters may differ after a cause has ended, and without a cause: a user would call more an outage.
const outage = 30 * time.Second

// lagTarget is the target for a difference without a cause. The test reports a missed target and does not fail.
const lagTarget = 8 * time.Second

// reserve is the time that the checks after a cause, and the end of the test, may take.
const reserve = 150 * time.Second

// TestFaults records one history of all causes.
func TestFaults(t *testing.T) {
	connected(t)
	offloaded(t)
	r := recorder.Start(t, clusters, recorder.Subject{File: *kept, Namespace: namespace, Consumer: rome, Providers: []*env.Cluster{milan}})
	createPods(t)
	mark(t, r, recorder.Marker{Kind: "steady"})
	for _, c := range causes() {
		if !chosen(c) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			// The history so far is checked even if the timeout leaves no time for another cause.
			if end, ends := t.Deadline(); ends && time.Until(end) < c.hold+reserve {
				t.Fatal("the timeout of the test leaves no time for this cause")
			}
			inject(t, r, c)
		})
	}
	check(t, r)
}

// mark writes a marker into the history and returns the answer.
func mark(t *testing.T, r *recorder.Recorder, m recorder.Marker) recorder.Answer {
	t.Helper()
	reply, err := r.Write(m)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// check checks the history, and that it contains the objects that the test created: an empty history violates no law.
func check(t *testing.T, r *recorder.Recorder) {
	t.Helper()
	report := r.Check(t, outage, outage)
	clusters.Measure("history: longest difference between the clusters without a cause", "%.1f s (target %v)", report.Lag, lagTarget)
	for what, want := range map[string]int{
		"Pods in the consumer": podCount(), "Pods in the provider": podCount(), "ShadowPods in the provider": podCount(), "runs of containers": podCount() + *each,
		"containers with observed processes": podCount(), "termination messages of runs": 3 * *each,
	} {
		if got := report.Count[what]; got < want {
			t.Errorf("the history has %d %s, want at least %d", got, what, want)
		}
		clusters.Measure("history: "+what, "%d", report.Count[what])
	}
}

func chosen(c cause) bool {
	if *only == "" {
		return !c.named && (*long || !c.long)
	}
	for part := range strings.SplitSeq(*only, ",") {
		if strings.Contains(c.name, part) {
			return true
		}
	}
	return false
}

// inject starts a cause, ends it, and checks that the clusters agree and work afterwards.
func inject(t *testing.T, r *recorder.Recorder, c cause) {
	mark(t, r, recorder.Marker{Kind: "start", Cause: c.name, Nodes: c.nodes})
	start := time.Now()
	c.start(t)
	<-time.After(time.Until(start.Add(c.hold))) // the length of the fault, not a wait for an event
	if c.end != nil {
		c.end(t)
	}
	ended := time.Now()
	lasted := ended.Sub(start)
	reply := mark(t, r, recorder.Marker{Kind: "end", Cause: c.name})
	clusters.Measure(c.name, "lasted %.0f s; both clusters agreed %.1f s after its end: %s", lasted.Seconds(), reply.Took, reply.Seen)
	if !reply.Agree || reply.Took > outage.Seconds() {
		t.Errorf("want both clusters to agree within %v, it took %.1f s: %s", outage, reply.Took, reply.Seen)
		rome.Show(t)
	}
	newObjectsWork(t, c.name, ended)
	idle(t, r)
}

// newObjectsWork creates an object after a cause and uses it: two clusters that agree on the earlier objects do not prove that.
func newObjectsWork(t *testing.T, cause string, ended time.Time) {
	t.Helper()
	name := "canary-" + strconv.FormatInt(ended.UnixNano(), 36)
	env.Eventually(t, outage, "rome accepts a ConfigMap", func() (string, bool) {
		result := rome.TryKubectl("", "-n", namespace, "create", "configmap", name, "--from-literal=after="+cause)
		return result.String(), result.Code == 0 || strings.Contains(result.Err, "AlreadyExists") // the answer to an earlier request may have been lost
	})
	env.Eventually(t, outage, "the ConfigMap is in milan", func() (string, bool) {
		result := milan.TryKubectl("", "get", "configmaps", "-A", "--field-selector", "metadata.name="+name, "-o", "jsonpath={.items[*].data.after}")
		return result.String(), result.Out == cause
	})
	env.Eventually(t, outage, "the virtual node is Ready", func() (string, bool) {
		result := rome.TryKubectl("", "get", "node", virtualNode, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return result.String(), result.Out == "True"
	})
	env.Eventually(t, outage, "rome shows the log of a pod in milan", func() (string, bool) {
		result := rome.TryKubectl("", "-n", namespace, "logs", "deployment/web-0", "--tail=1")
		return result.String(), result.Code == 0
	})
	clusters.Measure(cause+": something new", "worked %.1f s after its end", time.Since(ended).Seconds())
}

// idle is a time without a cause, so that late changes are recorded before the next one starts.
func idle(t *testing.T, r *recorder.Recorder) {
	t.Helper()
	<-time.After(5 * time.Second)
	select {
	case err := <-r.Done:
		t.Fatalf("the recorder has ended: %v", err)
	default:
	}
}
