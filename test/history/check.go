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
	lawFinished = "what has finished does not run again"
	lawRestart  = "a running pod is not restarted"
	lawCounted  = "no restart is counted that was none"
	lawDeleted  = "no pod is deleted that nobody wants deleted"
	lawPhase    = "a phase that is final stays"
	lawWished   = "no pod is made that nobody wished"
	lawWords    = "what a run says of itself is told of that run only"
	lawConverge = "both sides agree soon after the cause has ended"
)

// limits are times: within converge after a cause the clusters agree, and later they disagree for no longer than patience.
type limits struct {
	converge, patience time.Duration
}

// broken is one case of a law that does not hold.
type broken struct {
	Law string    `json:"law"`
	Who string    `json:"who"`
	How string    `json:"how"`
	At  time.Time `json:"at"`
}

// cause is one of the test's, from the marks.
type cause struct {
	mark       Mark
	began, end time.Time // end is zero if it has not ended
	next       time.Time // when the next one began; zero if none did
}

// report is what a history proves.
type report struct {
	Broken []broken `json:"broken"`
	// Converged is how long after the end of each cause the last difference lasted that was there when it ended.
	Converged map[string]float64 `json:"converged"`
	// Gaps, in which only those restarts and ends are known that leave a trace in the objects that came after them.
	Gaps  []string       `json:"gaps,omitempty"`
	Count map[string]int `json:"count"`
}

// checker holds what the laws ask.
type checker struct {
	facts  []Fact
	limits limits
	lives  runs
	locals map[string]*Pod // as last seen
	causes []cause
	asked  map[string]bool
	steady time.Time
	report report
	told   map[string]bool
}

// check holds a history against the laws. It looks at nothing else.
func check(facts []Fact, l limits) report {
	c := &checker{
		facts: facts, limits: l, lives: collect(facts), locals: map[string]*Pod{}, asked: map[string]bool{}, told: map[string]bool{},
		report: report{Converged: map[string]float64{}, Count: map[string]int{}},
	}
	c.read()
	for _, uid := range slices.Sorted(maps.Keys(c.lives)) {
		c.life(uid, c.lives[uid])
	}
	c.phases()
	c.deletions()
	c.wishes()
	c.counted()
	c.words()
	c.convergence()
	slices.SortFunc(c.report.Broken, func(a, b broken) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Who, b.Who)) })
	return c.report
}

func (c *checker) read() {
	count := c.report.Count
	seen := map[string]bool{}
	for _, f := range c.facts {
		switch {
		case f.Mark != nil:
			c.mark(f)
		case f.Gap != nil:
			c.report.Gaps = append(c.report.Gaps, fmt.Sprintf("%s %s from %s to %s: %s", f.Cluster, f.Gap.Kind, f.Gap.Since.Format(time.TimeOnly), f.At.Format(time.TimeOnly), f.Gap.Why))
		case f.Pod != nil:
			if f.Cluster == here {
				c.locals[f.Pod.UID] = f.Pod
			}
			if key := f.Pod.Kind + "s " + f.Cluster; !seen[key+f.Pod.UID] {
				seen[key+f.Pod.UID] = true
				count[key]++
			}
		case f.Process != nil && !seen[f.Process.Container]:
			seen[f.Process.Container] = true
			count["containers of which processes were seen"]++
		}
	}
	count["facts"] = len(c.facts)
	for _, list := range c.lives {
		count["runs of containers"] += len(list)
	}
}

func (c *checker) mark(f Fact) {
	switch f.Mark.Kind {
	case markSteady:
		c.steady = f.At
	case markAsked:
		for _, name := range f.Mark.Names {
			c.asked[name] = true
		}
	case markBegin:
		if last := len(c.causes) - 1; last >= 0 {
			c.causes[last].next = f.At
		}
		c.causes = append(c.causes, cause{mark: *f.Mark, began: f.At})
	case markEnd:
		for i := range c.causes {
			if c.causes[i].mark.What == f.Mark.What && c.causes[i].end.IsZero() {
				c.causes[i].end = f.At
			}
		}
	}
}

// fault keeps a case. Who is the UID of a pod here, or what else it was seen as.
func (c *checker) fault(law, uid string, at time.Time, how string, values ...any) {
	who := uid
	if local := c.locals[uid]; local != nil {
		who = local.Namespace + "/" + local.Name
	}
	one := broken{Law: law, Who: who, How: fmt.Sprintf(how, values...), At: at}
	if key := one.Law + one.Who + one.How; !c.told[key] {
		c.told[key] = true
		c.report.Broken = append(c.report.Broken, one)
	}
}

// excused says whether a cause took the node of the container away between its life and the next one.
func (c *checker) excused(of *run, next time.Time) bool {
	for _, one := range c.causes {
		if slices.Contains(one.mark.Nodes, of.node) && next.After(one.began) && (one.end.IsZero() || of.began.Before(one.end)) {
			return true
		}
	}
	return false
}

// life holds all that ran for one pod against the laws.
func (c *checker) life(uid string, list []*run) {
	for i, a := range list {
		for _, b := range list[i+1:] {
			if a.pod != b.pod && overlaps(a, b) || a.pod == b.pod && a.name != "" && a.name == b.name && overlaps(a, b) {
				c.fault(lawOnce, uid, b.began, "containers %.12s of pod %s and %.12s of pod %s were alive at the same time, from %s to %s and %s to %s",
					a.id, a.pod, b.id, b.pod, clock(a.began), clock(a.until), clock(b.began), clock(b.until))
			}
		}
	}
	last := map[string]*run{}
	for _, b := range list {
		a := last[b.name]
		if last[b.name] = b; a == nil {
			continue
		}
		switch end := a.ended; {
		case c.excused(a, b.began):
		case end != nil && (end.Code == 0 && a.policy != "Always" || a.policy == "Never"):
			c.fault(lawFinished, uid, b.began, "container %s had ended with code %d at %s and was started again at %s: it said %q", b.name, end.Code, clock(end.Ended), clock(b.began), end.Said)
		case end != nil && end.Code == again && a.policy != "Never":
		default:
			code := "not known"
			if end != nil {
				code = fmt.Sprint(end.Code)
			}
			c.fault(lawRestart, uid, b.began, "container %s ran as %.12s until %s (exit code %s), and as %.12s from %s", b.name, a.id, clock(a.until), code, b.id, clock(b.began))
		}
	}
}

func clock(at time.Time) string { return at.Format("15:04:05.000") }

// phases: what is final stays, on both sides; and nothing begins for a pod that has finished here.
func (c *checker) phases() {
	type one struct{ cluster, kind, uid string }
	final := map[one]string{}
	ended := map[string]time.Time{}
	for _, f := range c.facts {
		if f.Pod == nil {
			continue
		}
		key := one{f.Cluster, f.Pod.Kind, f.Pod.UID}
		if before := final[key]; before != "" && f.Pod.Phase != before {
			c.fault(lawPhase, f.Pod.For, f.At, "%s %s was %s and is %s", f.Pod.Kind, f.Cluster, before, f.Pod.Phase)
		}
		if !finished(f.Pod.Phase) || final[key] != "" {
			continue
		}
		final[key] = f.Pod.Phase
		if f.Cluster == here {
			ended[f.Pod.UID] = f.At
		}
	}
	for uid, at := range ended {
		for _, r := range c.lives[uid] {
			if r.began.After(at) {
				c.fault(lawFinished, uid, r.began, "it was %s at %s, and container %.12s began at %s", c.locals[uid].Phase, clock(at), r.id, clock(r.began))
			}
		}
	}
}

func (c *checker) deletions() {
	for _, f := range c.facts {
		if f.Pod == nil || f.Cluster != here && f.Pod.Kind != "ShadowPod" || !f.Pod.Deleting && !f.Gone {
			continue
		}
		local := c.locals[f.Pod.For]
		if local != nil && c.asked[local.Namespace+"/"+local.Name] {
			continue
		}
		what := "is being deleted"
		if f.Gone {
			what = "is gone"
		}
		c.fault(lawDeleted, f.Pod.For, f.At, "the %s %s %s, and nobody asked for that", f.Pod.Kind, f.Cluster, what)
	}
}

// wishes: once all that was wished is there, another pod is one too many, unless it replaces one that a cause ended.
func (c *checker) wishes() {
	if c.steady.IsZero() {
		return
	}
	excused := func(owner string, at time.Time) bool {
		for uid, list := range c.lives {
			local := c.locals[uid]
			if local == nil || local.Owner != owner {
				continue
			}
			if c.asked[local.Namespace+"/"+local.Name] || slices.ContainsFunc(list, func(r *run) bool { return c.excused(r, at) }) {
				return true
			}
		}
		return false
	}
	known := map[string]bool{}
	for _, f := range c.facts {
		if f.Pod == nil || f.Cluster != here || known[f.Pod.UID] {
			continue
		}
		known[f.Pod.UID] = true
		if f.At.After(c.steady) && !excused(f.Pod.Owner, f.At) {
			c.fault(lawWished, f.Pod.UID, f.At, "it appeared after all pods of %s were there", f.Pod.Owner)
		}
	}
}

// counted: what is shown of restarts is what there was of them.
func (c *checker) counted() {
	for uid, local := range c.locals {
		lives := map[string]int32{}
		for _, r := range c.lives[uid] {
			lives[r.name]++
		}
		for _, container := range local.Containers {
			if n := lives[container.Name]; n > 0 && container.Restarts > n-1 {
				c.fault(lawCounted, uid, c.facts[len(c.facts)-1].At, "container %s shows %d restarts and ran %d times", container.Name, container.Restarts, n)
			}
		}
	}
}

// convergence follows both sides through the history.
func (c *checker) convergence() {
	now := newSides()
	type spell struct {
		since time.Time
		what  string
	}
	differ := map[string]spell{}
	over := func(uid string, s spell, until time.Time) {
		for _, one := range c.causes {
			if one.end.IsZero() {
				continue
			}
			if s.since.Before(one.end) && until.After(one.end) && (one.next.IsZero() || s.since.Before(one.next)) {
				c.report.Converged[one.mark.What] = max(c.report.Converged[one.mark.What], until.Sub(one.end).Seconds())
			}
			from, to := one.end.Add(c.limits.converge), until
			if s.since.After(from) {
				from = s.since
			}
			if !one.next.IsZero() && one.next.Before(to) {
				to = one.next
			}
			// A difference from before the limit must be gone by then; a new one may last as long as news may wait.
			if slack := c.limits.patience; to.After(from) && (s.since.Before(one.end.Add(c.limits.converge-slack)) || to.Sub(from) > slack) {
				c.fault(lawConverge, uid, from, "after %q: for %.1f s %s", one.mark.What, until.Sub(s.since).Seconds(), s.what)
			}
		}
	}
	var last time.Time
	for _, f := range c.facts {
		last = f.At
		if f.Mark != nil && f.Mark.Kind == markEnd {
			c.report.Converged[f.Mark.What] = max(c.report.Converged[f.Mark.What], 0)
		}
		uid := now.take(f)
		if uid == "" {
			continue
		}
		what := now.difference(uid)
		before, differed := differ[uid]
		switch {
		case what == "" && differed:
			over(uid, before, f.At)
			delete(differ, uid)
		case what != "" && !differed:
			differ[uid] = spell{f.At, what}
		case what != "":
			differ[uid] = spell{before.since, what}
		}
	}
	for uid, s := range differ {
		over(uid, s, last)
	}
}
