// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"time"
)

// How long the deletion of an object waits for the provider, see docs/adr/0012-taking-a-peering-down.md.
const (
	// removeTime is for the removal of the copy, once all other finalizers are gone.
	removeTime = 30 * time.Second
	// drainTime is the longest that the other finalizers take if the provider answers.
	drainTime = 120 * time.Second
	// silentTime is for both if the provider does not answer. silentGrace is the least that is left for the removal, if the
	// provider stopped answering only after a long drain.
	silentTime  = 45 * time.Second
	silentGrace = 5 * time.Second
)

// ending is what the deadline of a deletion depends on.
type ending struct {
	// deleted is the deletion timestamp, drained when our finalizer was first seen to be the last one.
	deleted, drained time.Time
	// forced: do not wait.
	forced bool
	// ready: the provider's API server answers.
	ready bool
}

// deadline is when the finalizer is removed although the copy is not gone.
func (e ending) deadline() time.Time {
	if e.forced {
		return e.deleted
	}
	if e.ready {
		return earlier(e.drained.Add(removeTime), e.deleted.Add(drainTime+removeTime))
	}
	late := e.deleted.Add(silentTime)
	if grace := e.drained.Add(silentGrace); grace.After(late) {
		late = grace
	}
	return late
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// leftover is the text of the event about a copy that a deadline left in the peer. where is its namespace, if known.
func leftover(kind, name, peer, where string, accepted bool) string {
	if where == "" {
		where = "our tenant namespace"
	} else {
		where = "namespace " + where
	}
	cause := "the provider did not answer the request to delete it"
	if accepted {
		cause = "the provider accepted the request to delete it and has not finished"
	}
	return fmt.Sprintf("the copy of %s %s in cluster %s, %s, may be left: %s. It is deleted with the tenant of this cluster there; "+
		"to delete it now, an administrator of that cluster can delete the ForeignCluster of this cluster", kind, name, peer, where, cause)
}
