// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/env/recorder"
	"liqo.io/liqo/test/soak/plan"
)

// applier does what a plan has decided. The actions of one namespace or provider are done one after the other, those of several at the same
// time. Users repeat a command that fails, until it succeeds.
type applier struct {
	history *recorder.Recorder // nil: it has ended
	slots   chan struct{}      // held by commands that run
	t       *testing.T         // for the log

	mu       sync.Mutex // also of the history, which answers one marker after the other
	done     map[plan.Verb]int
	repeated int
	slowest  time.Duration
	slowName string
	failed   []string
	number   int
	lasts    string // the name of the fault that lasts
}

func newApplier(t *testing.T, history *recorder.Recorder) *applier {
	t.Helper()
	return &applier{history: history, slots: make(chan struct{}, commands), t: t, done: map[plan.Verb]int{}}
}

// end ends the record: later actions are not part of it.
func (a *applier) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.history = nil
}

// commands is how many commands of users run at the same time: their programs are not what this test is about, and share the processors.
const commands = 6

// longest is how long a fault lasts at most, whatever the pace: after five minutes, Kubernetes replaces the pods of a node that does not answer.
const longest = 4 * time.Minute

// accepted bounds how long users repeat a command: three minutes longer than any fault lasts.
func accepted() time.Duration { return min(plan.Longest**pace, longest) + 3*time.Minute }

// slow is how long a command takes that the log shows.
const slow = 20 * time.Second

// waiting is how many actions may wait for an earlier one of the same namespace or provider.
// It is as many as a fault lasts, so that waiting users do not keep one from ending.
const waiting = 64

// task is an action, the pods that may be deleted because of it, and the providers that namespaces lose and gain by it.
type task struct {
	action       plan.Action
	names, nodes []string
	lost, gained []plan.Change
	after        []chan struct{} // tasks that must be done before
	done         chan struct{}
}

// lanes are the queues of actions, by target.
type lanes struct {
	a       *applier
	queues  map[string]chan task
	working sync.WaitGroup
	choices []*task // that have changed what namespaces choose, or the labels by which they do
}

func (l *lanes) add(one task) {
	one.done = make(chan struct{})
	// The model knows what a namespace loses only if selectors and labels change in the order of the plan.
	switch one.action.Verb {
	case plan.Offload, plan.Unoffload, plan.Label, plan.Unlabel:
		for _, before := range l.choices {
			if before.labels() != one.labels() {
				one.after = append(one.after, before.done)
			}
		}
		l.choices = append(l.choices, &one)
	}
	queue := l.queues[one.action.Target]
	if queue == nil {
		queue = make(chan task, waiting)
		l.queues[one.action.Target] = queue
		l.working.Go(func() {
			for next := range queue {
				for _, before := range next.after {
					<-before
				}
				l.a.user(next)
				close(next.done)
			}
		})
	}
	queue <- one
}

func (one task) labels() bool {
	return one.action.Verb == plan.Label || one.action.Verb == plan.Unlabel
}

func (l *lanes) wait() {
	for _, queue := range l.queues {
		close(queue)
	}
	l.working.Wait()
}

// steps does actions of users that lead to a state, one namespace after the other, and waits after each until its pods are Ready: how fast everything
// starts at once is not what this test is about.
func (a *applier) steps(t *testing.T, s plan.State, actions []plan.Action) {
	t.Helper()
	for start := 0; start < len(actions); {
		end := start + 1
		for _, provider := s.Providers[actions[start].Target]; end < len(actions); end++ {
			_, also := s.Providers[actions[end].Target]
			if actions[end].Target != actions[start].Target && !(provider && also) {
				break
			}
		}
		a.all(t, s, actions[start:end])
		for _, one := range actions[start:end] {
			s = s.After(one)
		}
		settled(t, s)
		start = end
	}
}

// all does actions of users, from a state, and the ends of faults, and waits until all are done. Providers come before namespaces that follow them.
func (a *applier) all(t *testing.T, s plan.State, actions []plan.Action) {
	t.Helper()
	l := &lanes{a: a, queues: map[string]chan task{}}
	previous := false
	for _, one := range actions {
		_, provider := s.Providers[one.Target]
		if provider != previous { // namespaces go before their providers do, and come after them
			l.wait()
			l = &lanes{a: a, queues: map[string]chan task{}}
		}
		previous = provider
		s = a.next(t, l, s, one)
	}
	l.wait()
	a.check(t)
}

// act plans and does actions until a time, and returns the state that they lead to.
func (a *applier) act(t *testing.T, r plan.Source, s plan.State, until time.Time) plan.State {
	t.Helper()
	l := &lanes{a: a, queues: map[string]chan task{}}
	tick := time.NewTicker(*pace)
	defer tick.Stop()
	for time.Now().Before(until) {
		action := plan.Plan(r, s)
		if action.Lasts() {
			action.Value = min(action.Value, max(1, int(longest / *pace)))
		}
		s = a.next(t, l, s, action)
		<-tick.C // the pace of the users; no event is waited for
	}
	if s.Fault.End.Verb != "" { // what waits for its end could not end before
		s = a.next(t, l, s, s.Fault.End)
	}
	l.wait()
	a.check(t)
	return s
}

// next starts an action, and returns the state after it.
func (a *applier) next(t *testing.T, l *lanes, s plan.State, action plan.Action) plan.State {
	t.Helper()
	t.Logf("%s %d: %s", time.Now().Format(time.TimeOnly), s.Actions, action)
	if action.IsFault() {
		a.fault(t, s, action)
	} else {
		names, nodes := s.Deletes(action)
		lost, gained := s.Changes(action)
		l.add(task{action: action, names: names, nodes: nodes, lost: lost, gained: gained})
	}
	return s.After(action)
}

// check fails the test if a command of a user never succeeded.
func (a *applier) check(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range a.failed {
		t.Error(text)
	}
	if len(a.failed) > 0 {
		t.FailNow()
	}
}

func (a *applier) mark(t *testing.T, m recorder.Marker) recorder.Answer {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	reply, err := a.history.Write(m)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

// note writes a marker, if the history has not ended. What the history cannot take fails the test at the end.
func (a *applier) note(m recorder.Marker) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.history == nil {
		return
	}
	if _, err := a.history.Write(m); err != nil {
		a.failed = append(a.failed, err.Error())
	}
}

// late is how long after a command its effects may still come, such as the end of a rollout that a fault has delayed.
const late = 2 * time.Minute

// rolloutPause is how often a rollout that has not ended by then is looked at.
const rolloutPause = 5 * time.Second

// ended notes that nothing more follows from an action. A rollout goes on for as long as its new pods have no node, for instance because their
// providers have left.
func (a *applier) ended(name string, action plan.Action) {
	kind, _, _ := strings.Cut(action.Object, "/")
	if kind == "deployment" || kind == "statefulset" {
		a.mu.Lock()
		over := a.history == nil
		a.mu.Unlock()
		r := consumer.TryKubectl("", "-n", action.Target, "rollout", "status", action.Object, "--watch=false")
		if !over && !plan.RolledOut(r.Code, r.Out, r.Err) {
			time.AfterFunc(rolloutPause, func() { a.ended(name, action) })
			return
		}
	}
	a.note(recorder.Marker{Kind: "deleted", Cause: name})
}

// user does the action of a user, and repeats it until it succeeds.
func (a *applier) user(one task) {
	a.mu.Lock()
	a.number++
	name := fmt.Sprintf("%d %s", a.number, one.action)
	a.mu.Unlock()
	if len(one.names)+len(one.nodes) > 0 {
		a.note(recorder.Marker{Kind: "deletion", Cause: name, Names: one.names, Nodes: one.nodes})
		defer time.AfterFunc(late, func() { a.ended(name, one.action) })
	}
	for _, one := range one.lost {
		a.note(recorder.Marker{Kind: "withdrawal", Cause: change(one), Names: []string{one.Namespace + "/*"}, Nodes: []string{"liqo-" + one.Provider}})
	}
	defer func() {
		for _, one := range one.gained {
			a.note(recorder.Marker{Kind: "returned", Cause: change(one)})
		}
	}()
	start, attempts := time.Now(), 0
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		a.slots <- struct{}{}
		result := command(one.action)
		<-a.slots
		took := time.Since(start)
		if result.Code != 0 || result.Took > slow {
			a.t.Logf("%s %s: %s", time.Now().Format(time.TimeOnly), one.action, result)
		}
		if result.Code == 0 {
			a.succeeded(one.action, attempts, took)
			return
		}
		if attempts++; took > accepted() {
			a.mu.Lock()
			a.failed = append(a.failed, fmt.Sprintf("%s did not succeed in %d attempts within %v: %s", one.action, attempts, accepted(), result))
			a.mu.Unlock()
			return
		}
		<-again.C
	}
}

func (a *applier) succeeded(action plan.Action, attempts int, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done[action.Verb]++
	a.repeated += attempts
	if took > a.slowest {
		a.slowest, a.slowName = took, action.String()
	}
}

func change(one plan.Change) string { return one.Namespace + " in " + one.Provider }

// command does the action of a user once. Done twice, it changes nothing: the answer to the first time may have been lost.
func command(a plan.Action) execution.Result {
	kind, name, _ := strings.Cut(a.Object, "/")
	kubectl := func(stdin string, args ...string) execution.Result {
		return consumer.TryKubectl(stdin, append(args, "--request-timeout=20s")...)
	}
	// gone is true if an object is gone, or if that is not known; the result distinguishes them.
	gone := func(args ...string) (execution.Result, bool) {
		found := kubectl("", slices.Concat([]string{"get"}, args, []string{"--ignore-not-found", "-o", "name"})...)
		return found, found.Code != 0 || found.Out == ""
	}
	node := "liqo-" + a.Target
	switch a.Verb {
	case plan.CreateNamespace:
		return kubectl(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", a.Target), "apply", "-f", "-")
	case plan.DeleteNamespace:
		return consumer.TryKubectl("", "delete", "namespace", a.Target, "--ignore-not-found", "--timeout=120s")
	case plan.Offload:
		args := []string{"offload", "namespace", a.Target, "--pod-offloading-strategy", "Remote"}
		if a.Selector != "" {
			args = append(args, "-l", a.Selector)
		}
		if result := consumer.TryLiqoctl(args...); result.Code != 0 {
			return result
		}
		// A selector applies to pods that are created after it: those that wait for a cluster of an earlier one wait for ever.
		return kubectl("", "-n", a.Target, "delete", "pods", "--field-selector", "spec.nodeName=", "--wait=false")
	case plan.Unoffload:
		if result, is := gone("-n", a.Target, "namespaceoffloadings.offloading.liqo.io", "offloading"); is {
			return result // after a command that did not wait for its end
		}
		return consumer.TryLiqoctl("unoffload", "namespace", a.Target)
	case plan.Apply:
		return kubectl(manifest(kind, name, a.Value), "-n", a.Target, "apply", "-f", "-")
	case plan.Restart:
		return kubectl("", "-n", a.Target, "rollout", "restart", a.Object)
	case plan.Delete:
		return kubectl("", "-n", a.Target, "delete", a.Object, "--ignore-not-found", "--wait=false")
	case plan.Peer:
		return peer(a.Target)
	case plan.Unpeer:
		if result, is := gone("foreignclusters.discovery.liqo.io", a.Target); is {
			return result
		}
		return consumer.TryLiqoctl("unpeer", "out-of-band", a.Target)
	case plan.Drain:
		return consumer.TryKubectl("", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
	case plan.Uncordon:
		return kubectl("", "uncordon", node)
	case plan.Label:
		return kubectl("", "label", "node", node, "--overwrite", "pool=extra")
	case plan.Unlabel:
		return kubectl("", "label", "node", node, "pool-")
	}
	return execution.Result{Args: a.String(), Err: "no user does that", Code: 1}
}

func cluster(name string) *env.Cluster {
	for _, c := range clusters.Clusters {
		if c.Name == name {
			return c
		}
	}
	panic("the plan names cluster " + name + ", which is not in testdata/four.yaml")
}

func peer(name string) execution.Result {
	line := cluster(name).TryLiqoctl("generate", "peer-command", "--only-command")
	words := strings.Fields(line.Out)
	if line.Code != 0 || len(words) < 2 {
		return line
	}
	return consumer.TryLiqoctl(words[1:]...)
}

// manifest is an object with a value: replicas, completions, or a version of the content.
func manifest(kind, name string, value int) string {
	switch kind {
	case "deployment":
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:%[3]s`, name, value, recorder.Pod("Always", "", name == "api"))
	case "statefulset":
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  serviceName: %[1]s
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:%[3]s`, name, value, recorder.Pod("Always", "", false))
	case "job":
		return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %[1]s}
spec:
  completions: %[2]d
  parallelism: %[2]d
  backoffLimit: 200
  template:
    metadata: {labels: {app: batch}}
    spec:%[3]s`, name, value, recorder.Pod("Never", fmt.Sprintf(`"--for=%ds"`, 5+10*value), false))
	case "service":
		return fmt.Sprintf(
			"{apiVersion: v1, kind: Service, metadata: {name: %[1]s, annotations: {version: '%[2]d'}}, spec: {selector: {app: %[1]s}, ports: [{port: 80}]}}",
			name, value,
		)
	}
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {version: '%d'}}", name, value)
}

// fault does a part of a fault. The history learns when it starts and when it is over.
func (a *applier) fault(t *testing.T, s plan.State, action plan.Action) {
	t.Helper()
	c, name := cluster(action.Target), fmt.Sprintf("%d %s", s.Actions, action)
	m := recorder.Marker{Kind: "start", Cause: name}
	if action.Verb == plan.StopNode {
		m.Nodes = []string{action.Object}
	}
	switch {
	case action.Ends():
		m.Cause = a.lasts
	case action.Lasts():
		a.lasts = name
		a.note(m)
	default:
		a.note(m)
	}
	done := true
	switch action.Verb {
	case plan.KillProcess:
		done = c.TryKill(t, action.Object) // false: it waits to be started again
	case plan.KillComponent:
		clusters.Do(t, "component", "kill", c.Name, action.Object)
	case plan.CutLink:
		clusters.Do(t, "fault", "partition", plan.Consumer, c.Name)
	case plan.HealLink:
		clusters.Do(t, "fault", "heal", plan.Consumer, c.Name)
	case plan.StopComponent:
		clusters.Do(t, "component", "stop", c.Name, action.Object)
	case plan.StartComponent:
		clusters.Do(t, "component", "start", c.Name, action.Object)
	case plan.StopNode:
		clusters.Do(t, "node", "stop", c.Name, action.Object)
	case plan.StartNode:
		clusters.Do(t, "node", "start", c.Name, action.Object)
		c.Kubectl(t, "wait", "node", action.Object, "--for=condition=Ready", "--timeout=120s")
	}
	if done {
		a.mu.Lock()
		a.done[action.Verb]++
		a.mu.Unlock()
	}
	if action.Lasts() {
		return
	}
	env.Eventually(t, env.Hang, "the API server of "+c.Name+" answers", func() (string, bool) {
		result := c.TryKubectl("", "get", "--raw", "/readyz", "--request-timeout=2s")
		return result.String(), result.Code == 0
	})
	a.note(recorder.Marker{Kind: "over", Cause: m.Cause})
}
