// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path"
	"slices"
	"time"
)

// deletion is a request of the test to delete pods of the consumer.
type deletion struct {
	Marker
	start, end time.Time // end is zero if there is no marker of it
}

// withdrawn returns true if the deletion is a withdrawal that ended a run of the pod before the next one. It deletes the provider's pod, so a container
// that was restarted within that pod was not ended by it; and only pods with policy Always are created again.
func (d *deletion) withdrawn(local *Pod, a, b *run) bool {
	return a.pod != b.pod && a.policy == "Always" && b.start.After(d.start) && (d.end.IsZero() || a.start.Before(d.end)) &&
		slices.Contains(d.Nodes, local.Node) && d.matches(local)
}

func (d *deletion) matches(pod *Pod) bool {
	return slices.ContainsFunc(d.Names, func(pattern string) bool {
		matched, err := path.Match(pattern, pod.Namespace+"/"+pod.Name)
		return matched && err == nil
	})
}

// covers returns true if the deletion is a reason that the pod, which appeared at a time, is deleted at another.
func (d *deletion) covers(pod *Pod, appeared, at time.Time) bool {
	if at.Before(d.start) || !d.end.IsZero() && appeared.After(d.end) {
		return false
	}
	return slices.Contains(d.Nodes, pod.Node) || d.matches(pod)
}

// requested returns true if the test has requested the deletion of the consumer's pod by then.
func (c *checker) requested(local *Pod, at time.Time) bool {
	return local != nil && slices.ContainsFunc(c.deletes, func(d deletion) bool { return d.covers(local, c.appeared[local.UID], at) })
}

// withdrawn returns true if a withdrawal that has ended no other run of the pod ended the first of these two.
func (c *checker) withdrawn(uid string, a, b *run, ended map[int]bool) bool {
	local := c.locals[uid]
	for i := range c.withdraw {
		if local != nil && !ended[i] && c.withdraw[i].withdrawn(local, a, b) {
			ended[i] = true
			return true
		}
	}
	return false
}
