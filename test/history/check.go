// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The laws.
const (
	lawOnce     = "a pod runs once at a time"
	lawFinished = "a finished pod does not run again"
	lawRestart  = "a running pod is not restarted"
	lawCounted  = "the restart count is not higher than the number of restarts"
	lawDeleted  = "no pod is deleted without a request"
	lawPhase    = "a final phase does not change"
	lawExtra    = "no pod is created in excess of the desired ones"
	lawMessages = "the termination message of a run is shown for that run only"
	lawConverge = "both clusters agree soon after the cause has ended"
)

// limits are the longest differences between the clusters: they agree within converge after a cause has ended, and later they differ for
// no longer than lag.
type limits struct {
	converge, lag time.Duration
}

// violation is one case in which a law does not hold.
type violation struct {
	Law     string    `json:"law"`
	Subject string    `json:"subject"`
	Detail  string    `json:"detail"`
	At      time.Time `json:"at"`
}

// cause is a fault that the test caused, as its markers describe it.
type cause struct {
	Marker
	start, end time.Time // end is zero if it has not ended
	next       time.Time // start of the next cause; zero if there is none
}

// report is the result of checking a history.
type report struct {
	Violations []violation `json:"violations"`
	// Converged is, by cause, the seconds from its end until the clusters no longer differed in anything in which they differed at its end,
	// or until the next cause started.
	Converged map[string]float64 `json:"converged"`
	// Lag is the longest time, in seconds, that the clusters differed later than limits.converge after a cause.
	Lag float64 `json:"lag"`
	// Gaps are times for which the checker knows only those restarts and ends that later objects show.
	Gaps  []string       `json:"gaps,omitempty"`
	Count map[string]int `json:"count"`
}

// checker is the history, indexed for the checks of the laws.
type checker struct {
	facts    []Fact
	limits   limits
	runs     runs
	locals   map[string]*Pod // the consumer's pods by UID, as last seen
	causes   []cause
	deletes  []deletion
	withdraw []deletion
	appeared map[string]time.Time // the consumer's pods by UID, when they were first seen
	steady   time.Time
	report   report
	reported map[string]bool
}

// check checks a history against the laws. It depends on nothing else.
func check(facts []Fact, l limits) report {
	c := &checker{
		facts: facts, limits: l, runs: collect(facts), locals: map[string]*Pod{}, appeared: map[string]time.Time{}, reported: map[string]bool{},
		report: report{Converged: map[string]float64{}, Count: map[string]int{}},
	}
	c.read()
	for _, uid := range slices.Sorted(maps.Keys(c.runs)) {
		c.runsOf(uid, c.runs[uid])
	}
	c.phases()
	c.deletions()
	c.extraPods()
	c.restartCounts()
	c.messages()
	c.convergence()
	slices.SortFunc(c.report.Violations, func(a, b violation) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Subject, b.Subject)) })
	return c.report
}

func (c *checker) read() {
	count := c.report.Count
	seen := map[string]bool{}
	for _, f := range c.facts {
		switch {
		case f.Marker != nil:
			c.marker(f)
		case f.Gap != nil:
			c.report.Gaps = append(
				c.report.Gaps,
				fmt.Sprintf("%s %s from %s to %s: %s", f.Cluster, f.Gap.Kind, f.Gap.Since.Format(time.TimeOnly), f.At.Format(time.TimeOnly), f.Gap.Why),
			)
		case f.Pod != nil:
			if f.Cluster == consumer {
				if c.locals[f.Pod.UID] == nil {
					c.appeared[f.Pod.UID] = f.At
				}
				c.locals[f.Pod.UID] = f.Pod
			}
			if key := f.Pod.Kind + "s in the " + f.Cluster; !seen[key+f.Pod.UID] {
				seen[key+f.Pod.UID] = true
				count[key]++
			}
		case f.Process != nil && !seen[f.Process.Container]:
			seen[f.Process.Container] = true
			count["containers with observed processes"]++
		}
	}
	count["facts"] = len(c.facts)
	for _, list := range c.runs {
		count["runs of containers"] += len(list)
	}
}

func (c *checker) marker(f Fact) {
	switch f.Marker.Kind {
	case markerSteady:
		c.steady = f.At
	case markerDeletion:
		c.deletes = append(c.deletes, deletion{Marker: *f.Marker, start: f.At})
	case markerDeleted:
		for i := range c.deletes {
			if c.deletes[i].Cause == f.Marker.Cause && c.deletes[i].end.IsZero() {
				c.deletes[i].end = f.At
			}
		}
	case markerWithdrawal:
		c.withdraw = append(c.withdraw, deletion{Marker: *f.Marker, start: f.At})
	case markerReturned:
		for i := range c.withdraw {
			if c.withdraw[i].Cause == f.Marker.Cause && c.withdraw[i].end.IsZero() {
				c.withdraw[i].end = f.At
			}
		}
	case markerStart:
		if last := len(c.causes) - 1; last >= 0 {
			c.causes[last].next = f.At
		}
		c.causes = append(c.causes, cause{Marker: *f.Marker, start: f.At})
	case markerEnd, markerOver:
		for i := range c.causes {
			if c.causes[i].Cause == f.Marker.Cause && c.causes[i].end.IsZero() {
				c.causes[i].end = f.At
			}
		}
	}
}

// violation reports a case once. The subject is the name of the consumer's pod with this UID, if there is one.
func (c *checker) violation(law, uid string, at time.Time, detail string, values ...any) {
	subject := uid
	if local := c.locals[uid]; local != nil {
		subject = local.Namespace + "/" + local.Name
	}
	found := violation{Law: law, Subject: subject, Detail: fmt.Sprintf(detail, values...), At: at}
	if key := found.Law + found.Subject + found.Detail; !c.reported[key] {
		c.reported[key] = true
		c.report.Violations = append(c.report.Violations, found)
	}
}

// excused returns true if a cause took the node of the run away between this run and the next one.
func (c *checker) excused(of *run, next time.Time) bool {
	for _, one := range c.causes {
		if slices.Contains(one.Nodes, of.node) && next.After(one.start) && (one.end.IsZero() || of.start.Before(one.end)) {
			return true
		}
	}
	return false
}

// runsOf checks all runs of one pod of the consumer.
func (c *checker) runsOf(uid string, list []*run) {
	for i, a := range list {
		for _, b := range list[i+1:] {
			if a.pod != b.pod && overlaps(a, b) || a.pod == b.pod && a.name != "" && a.name == b.name && overlaps(a, b) {
				c.violation(lawOnce, uid, b.start, "containers %.12s of pod %s and %.12s of pod %s were alive at the same time, from %s to %s and %s to %s",
					a.id, a.pod, b.id, b.pod, clock(a.start), clock(a.until), clock(b.start), clock(b.until))
			}
		}
	}
	last := map[string]*run{}
	ended := map[int]bool{} // withdrawals that have ended a run: each ends one of a pod
	for _, b := range list {
		a := last[b.name]
		if last[b.name] = b; a == nil {
			continue
		}
		switch end := a.ended; {
		case c.excused(a, b.start):
		case end != nil && (end.Code == 0 && a.policy != "Always" || a.policy == "Never"):
			c.violation(
				lawFinished, uid, b.start, "container %s had ended with code %d at %s and was started again at %s: its message was %q", b.name,
				end.Code, clock(end.Ended), clock(b.start), end.Message,
			)
		case end != nil && end.Code == restartCode && a.policy != "Never":
		case c.withdrawn(uid, a, b, ended):
		default:
			code := "unknown"
			if end != nil {
				code = fmt.Sprint(end.Code)
			}
			c.violation(
				lawRestart, uid, b.start, "container %s ran as %.12s until %s (exit code %s), and as %.12s from %s", b.name, a.id, clock(a.until),
				code, b.id, clock(b.start),
			)
		}
	}
}

func clock(at time.Time) string { return at.Format("15:04:05.000") }

// phases checks that a final phase stays in both clusters, and that no container starts for a pod that has finished in the consumer.
func (c *checker) phases() {
	type object struct{ cluster, kind, uid string }
	final := map[object]string{}
	ended := map[string]time.Time{}
	for _, f := range c.facts {
		if f.Pod == nil {
			continue
		}
		key := object{f.Cluster, f.Pod.Kind, f.Pod.UID}
		if before := final[key]; before != "" && f.Pod.Phase != before {
			c.violation(lawPhase, f.Pod.For, f.At, "%s in the %s was %s and is %s", f.Pod.Kind, f.Cluster, before, f.Pod.Phase)
		}
		if !finished(f.Pod.Phase) || final[key] != "" {
			continue
		}
		final[key] = f.Pod.Phase
		if f.Cluster == consumer {
			ended[f.Pod.UID] = f.At
		}
	}
	for uid, at := range ended {
		for _, r := range c.runs[uid] {
			if r.start.After(at) {
				c.violation(lawFinished, uid, r.start, "the pod was %s at %s, and container %.12s started at %s", c.locals[uid].Phase, clock(at), r.id, clock(r.start))
			}
		}
	}
}

// deletions checks that only those pods are deleted that the test deleted.
func (c *checker) deletions() {
	for _, f := range c.facts {
		if f.Pod == nil || f.Cluster != consumer && f.Pod.Kind != "ShadowPod" || !f.Pod.Deleting && !f.Gone {
			continue
		}
		if c.requested(c.locals[f.Pod.For], f.At) {
			continue
		}
		state := "is being deleted"
		if f.Gone {
			state = "is gone"
		}
		c.violation(lawDeleted, f.Pod.For, f.At, "the %s in the %s %s, and the test has not deleted it", f.Pod.Kind, f.Cluster, state)
	}
}

// extraPods reports pods that appear after all desired pods were there, unless a pod replaces one that a cause ended.
func (c *checker) extraPods() {
	if c.steady.IsZero() {
		return
	}
	excused := func(owner string, at time.Time) bool {
		for uid, list := range c.runs {
			local := c.locals[uid]
			if local == nil || local.Owner != owner {
				continue
			}
			if c.requested(local, at) || slices.ContainsFunc(list, func(r *run) bool { return c.excused(r, at) }) {
				return true
			}
		}
		return false
	}
	known := map[string]bool{}
	for _, f := range c.facts {
		if f.Pod == nil || f.Cluster != consumer || known[f.Pod.UID] {
			continue
		}
		known[f.Pod.UID] = true
		if f.At.After(c.steady) && !excused(f.Pod.Owner, f.At) {
			c.violation(lawExtra, f.Pod.UID, f.At, "it appeared after all pods of %s were there", f.Pod.Owner)
		}
	}
}

// restartCounts checks that no container shows more restarts than it had.
func (c *checker) restartCounts() {
	for uid, local := range c.locals {
		count := map[string]int32{}
		for _, r := range c.runs[uid] {
			count[r.name]++
		}
		for _, container := range local.Containers {
			if n := count[container.Name]; n > 0 && container.Restarts > n-1 {
				c.violation(lawCounted, uid, c.facts[len(c.facts)-1].At, "container %s shows %d restarts and ran %d times", container.Name, container.Restarts, n)
			}
		}
	}
}

// convergence replays the history and checks how long the clusters differed.
func (c *checker) convergence() {
	now := newSnapshot()
	type period struct {
		since time.Time
		what  string
	}
	differ := map[string]period{}
	ended := func(uid string, s period, until time.Time) {
		for _, one := range c.causes {
			if one.end.IsZero() {
				continue
			}
			if s.since.Before(one.end) && until.After(one.end) && (one.next.IsZero() || s.since.Before(one.next)) {
				agreed := until
				if !one.next.IsZero() && one.next.Before(until) {
					agreed = one.next // what lasts longer may come from the next cause
				}
				c.report.Converged[one.Cause] = max(c.report.Converged[one.Cause], agreed.Sub(one.end).Seconds())
			}
			from, to := one.end.Add(c.limits.converge), until
			if s.since.After(from) {
				from = s.since
			}
			if !one.next.IsZero() && one.next.Before(to) {
				to = one.next
			}
			c.report.Lag = max(c.report.Lag, to.Sub(from).Seconds())
			// An older difference must have ended by then; a new one may last for the lag.
			if slack := c.limits.lag; to.After(from) && (s.since.Before(one.end.Add(c.limits.converge-slack)) || to.Sub(from) > slack) {
				c.violation(lawConverge, uid, from, "after %q: for %.1f s %s", one.Cause, until.Sub(s.since).Seconds(), s.what)
			}
		}
	}
	var last time.Time
	for _, f := range c.facts {
		last = f.At
		if f.Marker != nil && (f.Marker.Kind == markerEnd || f.Marker.Kind == markerOver) {
			c.report.Converged[f.Marker.Cause] = max(c.report.Converged[f.Marker.Cause], 0)
		}
		uid := now.apply(f)
		if uid == "" {
			continue
		}
		what := now.difference(uid)
		before, differed := differ[uid]
		switch {
		case what == "" && differed:
			ended(uid, before, f.At)
			delete(differ, uid)
		case what != "" && !differed:
			differ[uid] = period{f.At, what}
		case what != "":
			differ[uid] = period{before.since, what}
		}
	}
	for uid, s := range differ {
		ended(uid, s, last)
	}
}
