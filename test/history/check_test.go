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

// story builds a history. One pod here is "a", its pods there "x", "y".
type story []Fact

func (s *story) add(when float64, f Fact) *story {
	f.At = at(when)
	*s = append(*s, f)
	return s
}

func (s *story) mark(when float64, m Mark) *story { return s.add(when, Fact{Mark: &m}) }

type change func(*Pod)

func (s *story) local(when float64, uid string, changes ...change) *story {
	p := &Pod{Kind: "Pod", Namespace: "faults", Name: "pod-" + uid, UID: uid, For: uid, Owner: "Job/one", Policy: "OnFailure", Phase: "Running", Ready: true}
	for _, do := range changes {
		do(p)
	}
	return s.add(when, Fact{Cluster: here, Pod: p})
}

func (s *story) remote(when float64, uid string, changes ...change) *story {
	p := &Pod{Kind: "Pod", Namespace: "twin", Name: "pod-a", UID: uid, For: "a", Node: "milan-worker", Policy: "OnFailure", Phase: "Running", Ready: true}
	for _, do := range changes {
		do(p)
	}
	return s.add(when, Fact{Cluster: there, Pod: p})
}

func (s *story) gone(when float64) *story {
	last := (*s)[len(*s)-1]
	last.Gone = true
	return s.add(when, last)
}

func (s *story) process(id, pod string, began, until float64) *story {
	return s.add(until, Fact{Process: &Process{ID: 1, For: "a", PodUID: pod, Container: id, Began: at(began), Until: at(until)}, Gone: true})
}

func uri(id string) string { return "containerd://" + id }

func running(id string, since float64) change {
	return func(p *Pod) {
		begun := at(since)
		c := Container{Name: "main", ID: uri(id), Running: &begun}
		if len(p.Containers) > 0 { // the one before it has ended
			c.Before, c.Restarts = p.Containers[0].Ended, p.Containers[0].Restarts+1
		}
		p.Containers = []Container{c}
	}
}

func ended(id string, began, until float64, code int32) change {
	return func(p *Pod) {
		p.Containers = []Container{{Name: "main", ID: uri(id), Ended: &End{ID: uri(id), Code: code, Began: at(began), Ended: at(until), Said: "run " + id}}}
	}
}

func says(words string) change {
	return func(p *Pod) { p.Containers[0].Ended.Said = words }
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

// well is a pod that runs on both sides from second 0, and a cause from 10 to 20.
func well() *story {
	s := &story{}
	return s.remote(1, "x", running("c1", 0)).local(1.5, "a", running("c1", 0)).process("c1", "x", 0.2, 100).mark(2, Mark{Kind: markSteady}).
		mark(10, Mark{Kind: markBegin, What: "cause", Nodes: []string{"lost"}}).mark(20, Mark{Kind: markEnd, What: "cause"})
}

func TestLaws(t *testing.T) {
	lost := func(p *Pod) { p.Node = "lost" }
	for _, test := range []struct {
		name  string
		story *story
		want  []string // laws
	}{
		{"all is well", well(), nil},
		{"a Job's pod ends", well().remote(30, "x", phase("Succeeded"), ended("c1", 0, 29, 0)).local(30.2, "a", phase("Succeeded"), ended("c1", 0, 29, 0)), nil},
		{"it asks to be started again", well().remote(30, "x", ended("c1", 0, 29, again), running("c2", 31)).local(30.2, "a", ended("c1", 0, 29, again), running("c2", 31)), nil},
		{"two pods at once, by the API", well().remote(25, "y", running("c2", 24)).remote(26, "x", running("c1", 0)).remote(27, "y", running("c2", 24)).
			local(26, "a", running("c2", 24), restarts(1)), []string{lawOnce, lawRestart}},
		{"two pods at once, by their ends", well().remote(40, "y", phase("Failed"), ended("c2", 24, 38, stoppedCode)).remote(41, "x", phase("Failed"), ended("c1", 0, 30, stoppedCode)).
			local(42, "a", phase("Failed"), ended("c1", 0, 30, stoppedCode)), []string{lawOnce, lawRestart}},
		{"one after the other in the same second", (&story{}).remote(3, "x", running("c1", 0), lost).local(3, "a", running("c1", 0)).mark(10, Mark{Kind: markBegin, What: "n", Nodes: []string{"lost"}}).
			remote(12, "x", phase("Failed"), ended("c1", 0, 11, 137), lost).remote(13, "y", running("c2", 11), lost).local(14, "a", running("c2", 11), restarts(1)), nil},
		{"two at once, by the machine only: one was deleted by force", well().process("c0", "w", 50, 60), []string{lawOnce, lawRestart}},
		{"a process of the same container's next run, seen between two looks", well().process("c1", "x", 0.2, 50), nil},
		{"a running container is restarted", well().remote(30, "x", ended("c1", 0, 29, 137), running("c2", 30)).local(30.2, "a", ended("c1", 0, 29, 137), running("c2", 30)), []string{lawRestart}},
		{"and if it says 0 it has finished", well().remote(30, "x", ended("c1", 0, 29, 0), running("c2", 30)).local(30.2, "a", ended("c1", 0, 29, 0), running("c2", 30)), []string{lawFinished}},
		{"but a pod that always restarts has not", well().remote(30, "x", policy("Always"), ended("c1", 0, 29, again), running("c2", 30)).local(30.2, "a", ended("c1", 0, 29, 0), running("c2", 30)), nil},
		{"the pod is made anew", well().remote(30, "y", running("c2", 30)).local(30.2, "a", running("c2", 30), restarts(1)), []string{lawRestart}},
		{
			"its node was lost", (&story{}).remote(3, "x", running("c1", 0), lost).local(3, "a", running("c1", 0)).mark(10, Mark{Kind: markBegin, What: "n", Nodes: []string{"lost"}}).
				remote(15, "y", running("c2", 14)).local(15, "a", running("c2", 14), restarts(1)).mark(20, Mark{Kind: markEnd, What: "n"}), nil,
		},
		{
			"another node was lost", (&story{}).remote(3, "x", running("c1", 0)).local(3, "a", running("c1", 0)).mark(10, Mark{Kind: markBegin, What: "n", Nodes: []string{"lost"}}).
				remote(15, "y", running("c2", 14)).local(15, "a", running("c2", 14), restarts(1)).mark(20, Mark{Kind: markEnd, What: "n"}), []string{lawRestart},
		},
		{
			"a finished Job pod reruns", (&story{}).remote(3, "x", running("c1", 0)).mark(10, Mark{Kind: markBegin, What: "n"}).mark(20, Mark{Kind: markEnd, What: "n"}).remote(30, "x", phase("Succeeded"), ended("c1", 0, 29, 0)).local(30, "a", phase("Succeeded"), ended("c1", 0, 29, 0)).
				gone(30.1).remote(40, "y", running("c2", 39)).
				remote(60, "y", phase("Succeeded"), ended("c2", 39, 59, 0)), []string{lawFinished, lawDeleted, lawConverge},
		},
		{
			"and so by the machine alone", (&story{}).remote(3, "x", phase("Succeeded"), ended("c1", 0, 2, 0)).local(3, "a", phase("Succeeded"), ended("c1", 0, 2, 0)).
				process("c2", "y", 10, 12), []string{lawFinished},
		},
		{"a restart is counted that was none", well().local(30, "a", running("c1", 0), restarts(1)), []string{lawCounted}},
		{"a local pod is deleted", well().local(30, "a", running("c1", 0), deleting()).remote(30.1, "x", running("c1", 0), deleting()), []string{lawDeleted}},
		{"a local pod vanishes", well().local(30, "a", running("c1", 0)).gone(30.1), []string{lawDeleted, lawConverge}},
		{"somebody asked for that", well().mark(29, Mark{Kind: markAsked, Names: []string{"faults/pod-a"}}).local(30, "a", running("c1", 0), deleting()).
			remote(30.1, "x", running("c1", 0), deleting()).gone(31).local(31, "a", deleting()).gone(31.1), nil},
		{"a wish is deleted", well().remote(30, "s", kind("ShadowPod"), deleting()), []string{lawDeleted}},
		{"a phase goes back", well().local(30, "a", phase("Failed"), ended("c1", 0, 29, 137)).local(31, "a", running("c1", 0)), []string{lawPhase}},
		{"the phase of a wish goes back", well().remote(30, "s", kind("ShadowPod"), phase("Succeeded")).remote(31, "s", kind("ShadowPod")), []string{lawPhase}},
		{"one final phase becomes another", well().local(30, "a", phase("Failed")).local(31, "a", phase("Succeeded")).remote(31, "x", phase("Succeeded"), ended("c1", 0, 30, 0)), []string{lawPhase}},
		{"last words of another pod", well().remote(30, "x", phase("Succeeded"), ended("c1", 0, 29, 0), says("run 12 for pod b from")).
			local(30.2, "a", phase("Succeeded"), ended("c1", 0, 29, 0), says("run 12 for pod b from")), []string{lawWords}},
		{"two words of one container", well().remote(30, "x", phase("Succeeded"), ended("c1", 0, 29, 0), says("run 12 for pod a from")).
			local(30.2, "a", phase("Succeeded"), ended("c1", 0, 29, 0), says("run 13 for pod a from")).remote(30.4, "x", phase("Succeeded"), ended("c1", 0, 29, 0), says("run 13 for pod a from")), []string{lawWords}},
		{"one word of two containers", (&story{}).remote(30, "x", ended("c1", 0, 29, again), says("run 12 for pod a from"), running("c2", 30)).
			remote(31, "x", phase("Succeeded"), ended("c2", 30, 31, 0), says("run 12 for pod a from")).
			local(32, "a", phase("Succeeded"), ended("c2", 30, 31, 0), says("run 12 for pod a from")), []string{lawWords}},
		{"a pod too many", well().local(30, "b", named("pod-b"), phase("Failed")), []string{lawWished}},
		{"one for another Job", well().local(30, "b", phase("Failed"), owner("Job/two")), []string{lawWished}},
		{"they never agree", well().remote(15, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).mark(70, Mark{Kind: markStop}).remote(70, "z", kind("ShadowPod")), []string{lawConverge}},
		{"they agree late", well().remote(21, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(55, "a", phase("Succeeded"), ended("c1", 0, 14, 0)), []string{lawConverge}},
		{"they agree in time", well().remote(21, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(45, "a", phase("Succeeded"), ended("c1", 0, 14, 0)), nil},
		{"much later, news is slow", well().remote(90, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(110, "a", phase("Succeeded"), ended("c1", 0, 14, 0)), []string{lawConverge}},
		{"much later, news is as slow as it may be", well().remote(90, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(93, "a", phase("Succeeded"), ended("c1", 0, 14, 0)), nil},
		{"the next cause ends the time to agree", well().remote(45, "x", phase("Succeeded"), ended("c1", 0, 44, 0)).mark(46, Mark{Kind: markBegin, What: "next"}).
			mark(80, Mark{Kind: markEnd, What: "next"}).local(90, "a", phase("Succeeded"), ended("c1", 0, 44, 0)), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			slices.SortStableFunc(*test.story, func(a, b Fact) int { return a.At.Compare(b.At) })
			// What is checked is what was written down.
			var written bytes.Buffer
			for _, f := range *test.story {
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
			for _, one := range found.Broken {
				if !slices.Contains(got, one.Law) {
					got = append(got, one.Law)
				}
			}
			slices.Sort(got)
			slices.Sort(test.want)
			if !slices.Equal(got, test.want) {
				t.Errorf("broken: %q\n  want %q\n%v", got, test.want, found.Broken)
			}
		})
	}
}

// stoppedCode is the exit code of a run that was told to stop.
const stoppedCode = 7

func TestConverged(t *testing.T) {
	s := well().remote(15, "x", phase("Succeeded"), ended("c1", 0, 14, 0)).local(32.5, "a", phase("Succeeded"), ended("c1", 0, 14, 0))
	slices.SortStableFunc(*s, func(a, b Fact) int { return a.At.Compare(b.At) })
	found := check(*s, limits{30 * time.Second, 8 * time.Second})
	if got := found.Converged["cause"]; got != 12.5 || len(found.Broken) > 0 {
		t.Errorf("converged after %v s, want 12.5; %v", got, found.Broken)
	}
	for what, want := range map[string]int{"Pods here": 1, "Pods there": 1, "runs of containers": 1, "containers of which processes were seen": 1} {
		if got := found.Count[what]; got != want {
			t.Errorf("%d %s, want %d", got, what, want)
		}
	}
}
