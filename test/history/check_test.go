// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"
)

var zero = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }

// timeline builds a history. The consumer has one pod, "a"; the provider's pods for it are "x" and "y".
type timeline []Fact

func (s *timeline) add(when float64, f Fact) *timeline {
	f.At = at(when)
	*s = append(*s, f)
	return s
}

func (s *timeline) marker(when float64, m Marker) *timeline { return s.add(when, Fact{Marker: &m}) }

type change func(*Pod)

func (s *timeline) local(when float64, uid string, changes ...change) *timeline {
	p := &Pod{Kind: "Pod", Namespace: "faults", Name: "pod-" + uid, UID: uid, For: uid, Owner: "Job/one", Policy: "OnFailure", Phase: "Running", Ready: true}
	for _, do := range changes {
		do(p)
	}
	return s.add(when, Fact{Cluster: consumer, Pod: p})
}

func (s *timeline) remote(when float64, uid string, changes ...change) *timeline {
	p := &Pod{Kind: "Pod", Namespace: "remote", Name: "pod-a", UID: uid, For: "a", Node: "milan-worker", Policy: "OnFailure", Phase: "Running", Ready: true}
	for _, do := range changes {
		do(p)
	}
	return s.add(when, Fact{Cluster: provider, Pod: p})
}

func (s *timeline) gone(when float64) *timeline {
	last := (*s)[len(*s)-1]
	last.Gone = true
	return s.add(when, last)
}

func (s *timeline) process(id, pod string, start, until float64) *timeline {
	return s.add(until, Fact{Process: &Process{ID: 1, For: "a", PodUID: pod, Container: id, Started: at(start), Until: at(until)}, Gone: true})
}

func uri(id string) string { return "containerd://" + id }

func running(id string, since float64) change {
	return func(p *Pod) {
		start := at(since)
		c := Container{Name: "main", ID: uri(id), Running: &start}
		if len(p.Containers) > 0 { // the previous run has ended
			c.Previous, c.Restarts = p.Containers[0].Ended, p.Containers[0].Restarts+1
		}
		p.Containers = []Container{c}
	}
}

func ended(id string, start, until float64, code int32) change {
	return func(p *Pod) {
		p.Containers = []Container{{Name: "main", ID: uri(id), Ended: &End{ID: uri(id), Code: code, Started: at(start), Ended: at(until), Message: "run " + id}}}
	}
}

func message(text string) change {
	return func(p *Pod) { p.Containers[0].Ended.Message = text }
}

func phase(to string) change {
	return func(p *Pod) { p.Phase, p.Ready = to, to == "Running" }
}

func policy(to string) change  { return func(p *Pod) { p.Policy = to } }
func deleting() change         { return func(p *Pod) { p.Deleting = true } }
func owner(of string) change   { return func(p *Pod) { p.Owner = of } }
func restarts(n int32) change  { return func(p *Pod) { p.Containers[0].Restarts = n } }
func kind(of string) change    { return func(p *Pod) { p.Kind = of } }
func named(name string) change { return func(p *Pod) { p.Name = name } }

// healthy is a pod that runs in both clusters from second 0, and a cause from 10 to 20.
func healthy() *timeline {
	s := &timeline{}
	return s.remote(1, "x", running("c1", 0)).local(1.5, "a", running("c1", 0)).process("c1", "x", 0.2, 100).marker(2, Marker{Kind: markerSteady}).
		marker(10, Marker{Kind: markerStart, Cause: "cause", Nodes: []string{"lost"}}).marker(20, Marker{Kind: markerEnd, Cause: "cause"})
}

// removed is a pod of a virtual node that is deleted at second 30, after a marker.
func removed(m Marker) *timeline {
	virtual := func(p *Pod) { p.Node = "virtual" }
	return (&timeline{}).remote(1, "x", running("c1", 0)).local(1.5, "a", running("c1", 0), virtual).marker(29, m).
		local(30, "a", running("c1", 0), virtual, deleting())
}

// withdrawn is a pod of a virtual node whose namespace loses the provider from second 10 to 30, and which starts again at second 40.
func withdrawn(m Marker, changes ...change) *timeline {
	virtual := func(p *Pod) { p.Node = "virtual" }
	return (&timeline{}).remote(1, "x", append([]change{running("c1", 0), policy("Always")}, changes...)...).
		local(1.5, "a", running("c1", 0), virtual, policy("Always")).
		marker(10, m).marker(30, Marker{Kind: markerReturned, Cause: m.Cause}).
		remote(40, "y", running("c2", 39), policy("Always")).local(40.5, "a", running("c2", 39), virtual, policy("Always"), restarts(1))
}

func TestLaws(t *testing.T) {
	lost := func(p *Pod) { p.Node = "lost" }
	for _, test := range []struct {
		name  string
		facts *timeline
		want  []string // laws
	}{
		{"all is well", healthy(), nil},
		{"a Job's pod ends", healthy().remote(30, "x", phase("Succeeded"), ended("c1", 0, 29, 0)).local(30.2, "a", phase("Succeeded"), ended("c1", 0, 29, 0)), nil},
		{
			"it requests a restart",
			healthy().remote(30, "x", ended("c1", 0, 29, restartCode), running("c2", 31)).local(30.2, "a", ended("c1", 0, 29, restartCode), running("c2", 31)),
			nil,
		},
		{"two pods at once, by the API", healthy().remote(25, "y", running("c2", 24)).remote(26, "x", running("c1", 0)).remote(27, "y", running("c2", 24)).
			local(26, "a", running("c2", 24), restarts(1)), []string{lawOnce, lawRestart}},
		{"two pods at once, by their end times", healthy().remote(40, "y", phase("Failed"), ended("c2", 24, 38, stoppedCode)).
			remote(41, "x", phase("Failed"), ended("c1", 0, 30, stoppedCode)).
			local(42, "a", phase("Failed"), ended("c1", 0, 30, stoppedCode)), []string{lawOnce, lawRestart}},
		{"one after the other in the same second", (&timeline{}).remote(3, "x", running("c1", 0), lost).local(3, "a", running("c1", 0)).
			marker(10, Marker{Kind: markerStart, Cause: "n", Nodes: []string{"lost"}}).
			remote(12, "x", phase("Failed"), ended("c1", 0, 11, 137), lost).remote(13, "y", running("c2", 11), lost).
			local(14, "a", running("c2", 11), restarts(1)), nil},
		{"two pods at once, by their processes only: one was deleted by force", healthy().process("c0", "w", 50, 60), []string{lawOnce, lawRestart}},
		{"a process of the same container's next run, seen between two scans", healthy().process("c1", "x", 0.2, 50), nil},
		{
			"a running container is restarted",
			healthy().remote(30, "x", ended("c1", 0, 29, 137), running("c2", 30)).local(30.2, "a", ended("c1", 0, 29, 137), running("c2", 30)),
			[]string{lawRestart},
		},
		{
			"a container that exited with 0 is restarted",
			healthy().remote(30, "x", ended("c1", 0, 29, 0), running("c2", 30)).local(30.2, "a", ended("c1", 0, 29, 0), running("c2", 30)),
			[]string{lawFinished},
		},
		{
			"a container that exited with 0 is restarted, and its policy is Always",
			healthy().remote(30, "x", policy("Always"), ended("c1", 0, 29, restartCode), running("c2", 30)).local(30.2, "a", ended("c1", 0, 29, 0), running("c2", 30)),
			nil,
		},
		{"the pod is created again", healthy().remote(30, "y", running("c2", 30)).local(30.2, "a", running("c2", 30), restarts(1)), []string{lawRestart}},
		{
			"its namespace lost the provider and gained it again",
			withdrawn(Marker{Kind: markerWithdrawal, Cause: "w", Names: []string{"faults/*"}, Nodes: []string{"virtual"}}), nil,
		},
		{
			"its namespace lost another provider",
			withdrawn(Marker{Kind: markerWithdrawal, Cause: "w", Names: []string{"faults/*"}, Nodes: []string{"other"}}),
			[]string{lawRestart},
		},
		{
			"another namespace lost the provider",
			withdrawn(Marker{Kind: markerWithdrawal, Cause: "w", Names: []string{"other/*"}, Nodes: []string{"virtual"}}),
			[]string{lawRestart},
		},
		{
			"a pod that never restarts starts again after that",
			withdrawn(Marker{Kind: markerWithdrawal, Cause: "w", Names: []string{"faults/*"}, Nodes: []string{"virtual"}}, policy("Never")),
			[]string{lawRestart},
		},
		{
			"it starts again twice after that", withdrawn(Marker{Kind: markerWithdrawal, Cause: "w", Names: []string{"faults/*"}, Nodes: []string{"virtual"}}).
				remote(16, "w", running("c0", 15), policy("Always")), []string{lawRestart},
		},
		{
			"it is restarted later",
			withdrawn(Marker{Kind: markerWithdrawal, Cause: "w", Names: []string{"faults/*"}, Nodes: []string{"virtual"}}, running("c1", 35)),
			[]string{lawRestart},
		},
		{
			"its node was lost", (&timeline{}).remote(3, "x", running("c1", 0), lost).local(3, "a", running("c1", 0)).
				marker(10, Marker{Kind: markerStart, Cause: "n", Nodes: []string{"lost"}}).
				remote(15, "y", running("c2", 14)).local(15, "a", running("c2", 14), restarts(1)).marker(20, Marker{Kind: markerEnd, Cause: "n"}), nil,
		},
		{
			"another node was lost", (&timeline{}).remote(3, "x", running("c1", 0)).local(3, "a", running("c1", 0)).
				marker(10, Marker{Kind: markerStart, Cause: "n", Nodes: []string{"lost"}}).
				remote(15, "y", running("c2", 14)).local(15, "a", running("c2", 14), restarts(1)).marker(20, Marker{Kind: markerEnd, Cause: "n"}), []string{lawRestart},
		},
		{
			"a finished Job pod reruns", (&timeline{}).remote(3, "x", running("c1", 0)).marker(10, Marker{Kind: markerStart, Cause: "n"}).marker(
				20, Marker{Kind: markerEnd, Cause: "n"},
			).remote(30, "x", phase("Succeeded"), ended("c1", 0, 29, 0)).local(30, "a", phase("Succeeded"), ended("c1", 0, 29, 0)).
				gone(30.1).remote(40, "y", running("c2", 39)).
				remote(60, "y", phase("Succeeded"), ended("c2", 39, 59, 0)), []string{lawFinished, lawDeleted, lawConverge},
		},
		{
			"a finished Job pod reruns, by its process only", (&timeline{}).remote(3, "x", phase("Succeeded"), ended("c1", 0, 2, 0)).
				local(3, "a", phase("Succeeded"), ended("c1", 0, 2, 0)).
				process("c2", "y", 10, 12), []string{lawFinished},
		},
		{"a restart is counted that did not happen", healthy().local(30, "a", running("c1", 0), restarts(1)), []string{lawCounted}},
		{"a local pod is deleted", healthy().local(30, "a", running("c1", 0), deleting()).remote(30.1, "x", running("c1", 0), deleting()), []string{lawDeleted}},
		{"a local pod vanishes", healthy().local(30, "a", running("c1", 0)).gone(30.1), []string{lawDeleted, lawConverge}},
		{"the test deletes a local pod", healthy().marker(29, Marker{Kind: markerDeletion, Names: []string{"faults/pod-a"}}).
			local(30, "a", running("c1", 0), deleting()).
			remote(30.1, "x", running("c1", 0), deleting()).gone(31).local(31, "a", deleting()).gone(31.1), nil},
		{"the test deletes the pods of a workload", removed(Marker{Kind: markerDeletion, Names: []string{"faults/pod-*"}}), nil},
		{"the test deletes the pods of another workload", removed(Marker{Kind: markerDeletion, Names: []string{"faults/other-*", "other/*"}}), []string{lawDeleted}},
		{"the test deletes the pods of a virtual node", removed(Marker{Kind: markerDeletion, Nodes: []string{"virtual"}}), nil},
		{"the test deletes the pods of another virtual node", removed(Marker{Kind: markerDeletion, Nodes: []string{"other"}}), []string{lawDeleted}},
		{
			"a pod is deleted before the test deletes it",
			removed(Marker{Kind: markerStart, Cause: "none"}).marker(32, Marker{Kind: markerDeletion, Names: []string{"faults/*"}}),
			[]string{lawDeleted},
		},
		{"the deletion was complete before the pod appeared", (&timeline{}).marker(0.1, Marker{Kind: markerDeletion, Cause: "d", Names: []string{"faults/*"}}).
			marker(1, Marker{Kind: markerDeleted, Cause: "d"}).
			remote(1, "x", running("c1", 0)).local(1.5, "a", running("c1", 0)).local(30, "a", running("c1", 0), deleting()), []string{lawDeleted}},
		{"a pod of the deletion is deleted after the command has ended", (&timeline{}).remote(1, "x", running("c1", 0)).local(1.5, "a", running("c1", 0)).
			marker(2, Marker{Kind: markerDeletion, Cause: "d", Names: []string{"faults/*"}}).marker(3, Marker{Kind: markerDeleted, Cause: "d"}).
			local(30, "a", running("c1", 0), deleting()), nil},
		{"a ShadowPod is deleted", healthy().remote(30, "s", kind("ShadowPod"), deleting()), []string{lawDeleted}},
		{"a phase goes back", healthy().local(30, "a", phase("Failed"), ended("c1", 0, 29, 137)).local(31, "a", running("c1", 0)), []string{lawPhase}},
		{
			"the phase of a ShadowPod goes back",
			healthy().remote(30, "s", kind("ShadowPod"), phase("Succeeded")).remote(31, "s", kind("ShadowPod")),
			[]string{lawPhase},
		},
		{
			"one final phase becomes another",
			healthy().local(30, "a", phase("Failed")).local(31, "a", phase("Succeeded")).remote(31, "x", phase("Succeeded"), ended("c1", 0, 30, 0)),
			[]string{lawPhase},
		},
		{"the message of another pod", healthy().remote(30, "x", phase("Succeeded"), ended("c1", 0, 29, 0), message("run 12 for pod b from")).
			local(30.2, "a", phase("Succeeded"), ended("c1", 0, 29, 0), message("run 12 for pod b from")), []string{lawMessages}},
		{"two messages of one container", healthy().remote(30, "x", phase("Succeeded"), ended("c1", 0, 29, 0), message("run 12 for pod a from")).
			local(30.2, "a", phase("Succeeded"), ended("c1", 0, 29, 0), message("run 13 for pod a from")).
			remote(30.4, "x", phase("Succeeded"), ended("c1", 0, 29, 0), message("run 13 for pod a from")), []string{lawMessages}},
		{"one message of two containers", (&timeline{}).remote(30, "x", ended("c1", 0, 29, restartCode), message("run 12 for pod a from"), running("c2", 30)).
			remote(31, "x", phase("Succeeded"), ended("c2", 30, 31, 0), message("run 12 for pod a from")).
			local(32, "a", phase("Succeeded"), ended("c2", 30, 31, 0), message("run 12 for pod a from")), []string{lawMessages}},
		{"an extra pod", healthy().local(30, "b", named("pod-b"), phase("Failed")), []string{lawExtra}},
		{"an extra pod of another Job", healthy().local(30, "b", phase("Failed"), owner("Job/two")), []string{lawExtra}},
		{
			"they never agree",
			healthy().remote(15, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).marker(70, Marker{Kind: markerStop}).remote(70, "z", kind("ShadowPod")),
			[]string{lawConverge},
		},
		{
			"they agree late",
			healthy().remote(21, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(55, "a", phase("Succeeded"), ended("c1", 0, 14, 0)),
			[]string{lawConverge},
		},
		{"they agree in time", healthy().remote(21, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(45, "a", phase("Succeeded"), ended("c1", 0, 14, 0)), nil},
		{
			"much later, an update is slow",
			healthy().remote(90, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(110, "a", phase("Succeeded"), ended("c1", 0, 14, 0)),
			[]string{lawConverge},
		},
		{
			"much later, an update takes less than the lag",
			healthy().remote(90, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(93, "a", phase("Succeeded"), ended("c1", 0, 14, 0)), nil,
		},
		{"the next cause ends the time to agree", healthy().remote(45, "x", phase("Succeeded"), ended("c1", 0, 44, 0)).
			marker(46, Marker{Kind: markerStart, Cause: "next"}).
			marker(80, Marker{Kind: markerEnd, Cause: "next"}).local(90, "a", phase("Succeeded"), ended("c1", 0, 44, 0)), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			slices.SortStableFunc(*test.facts, func(a, b Fact) int { return a.At.Compare(b.At) })
			// The check reads the facts as the recorder writes them.
			var written bytes.Buffer
			for _, f := range *test.facts {
				if err := json.NewEncoder(&written).Encode(f); err != nil {
					t.Fatal(err)
				}
			}
			facts, err := read(&written)
			if err != nil {
				t.Fatal(err)
			}
			found := check(facts, limits{30 * time.Second, 8 * time.Second})
			var got []string
			for _, one := range found.Violations {
				if !slices.Contains(got, one.Law) {
					got = append(got, one.Law)
				}
			}
			slices.Sort(got)
			slices.Sort(test.want)
			if !slices.Equal(got, test.want) {
				t.Errorf("violated: %q\n  want %q\n%v", got, test.want, found.Violations)
			}
		})
	}
}

// stoppedCode is the exit code of a run that a signal stopped.
const stoppedCode = 7

func TestConverged(t *testing.T) {
	s := healthy().remote(15, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(32.5, "a", phase("Succeeded"), ended("c1", 0, 14, 0))
	slices.SortStableFunc(*s, func(a, b Fact) int { return a.At.Compare(b.At) })
	found := check(*s, limits{30 * time.Second, 8 * time.Second})
	if got := found.Converged["cause"]; got != 12.5 || len(found.Violations) > 0 {
		t.Errorf("converged after %v s, want 12.5; %v", got, found.Violations)
	}
	for what, want := range map[string]int{
		"Pods in the consumer": 1, "Pods in the provider": 1, "runs of containers": 1, "containers with observed processes": 1,
	} {
		if got := found.Count[what]; got != want {
			t.Errorf("%d %s, want %d", got, what, want)
		}
	}
}

// What lasts into the next cause counts until that starts.
func TestConvergedBeforeNext(t *testing.T) {
	s := healthy().remote(15, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).marker(25, Marker{Kind: markerStart, Cause: "next"}).
		local(32.5, "a", phase("Succeeded"), ended("c1", 0, 14, 0)).marker(35, Marker{Kind: markerOver, Cause: "next"})
	slices.SortStableFunc(*s, func(a, b Fact) int { return a.At.Compare(b.At) })
	if found := check(*s, limits{30 * time.Second, 8 * time.Second}); found.Converged["cause"] != 5 || found.Converged["next"] != 0 || len(found.Violations) > 0 {
		t.Errorf("converged after %v s, want 5 and 0; %v", found.Converged, found.Violations)
	}
}

func TestLag(t *testing.T) {
	s := healthy().remote(90, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(93, "a", phase("Succeeded"), ended("c1", 0, 14, 0))
	slices.SortStableFunc(*s, func(a, b Fact) int { return a.At.Compare(b.At) })
	if found := check(*s, limits{30 * time.Second, 8 * time.Second}); found.Lag != 3 {
		t.Errorf("the longest difference is %v s, want 3", found.Lag)
	}
}
