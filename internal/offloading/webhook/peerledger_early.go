// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"liqo.io/liqo/internal/offloading/ledger"
)

// unlisted is the time of the last list of a peer whose first one has not ended.
var unlisted = time.Unix(1, 0)

// earlyWait is what a peer waits for its first list.
const earlyWait = time.Second

// earlyProblem is why a peer waits: it has added as much as it gets before its first list.
const earlyProblem = "what the peer has is being counted, because the controller manager has started: what it adds is judged in a moment, and it tries again on its own"

// early returns what a peer gets before its first list: a part of each bound, beside what it had. The caches have counted objects of Liqo's kinds.
func early(o LedgerOptions) ledger.Limits {
	const part = 10
	limits := ledger.Limits{Objects: map[schema.GroupResource]int64{}}
	for kind, most := range o.Limits.Objects {
		if kind != ShadowPods && kind != ShadowEndpointSlices && !inTenant(kind) {
			limits.Objects[kind] = max(most/part, 1)
		}
	}
	for amount, most := range o.Limits.Use {
		if most > 0 {
			limits.Use[amount] = max(most/part, 1)
		}
	}
	return limits
}

// added returns what a change adds to what a peer had when this process started, to be counted by the early ledger, and whether it adds anything. An object that is there is
// no further one: only what its updates add counts. It adds up, also if one of them takes something away, because the API server may not store that.
func added(change ledger.Change, early *ledger.Ledger) (ledger.Change, bool) {
	change.Written = false
	if change.New {
		return change, true
	}
	change.Key.Resource.Resource += "/update" // no kind, so that the number is not bounded
	before, adds := early.Of(change.Key), false
	for amount, now := range change.Use {
		more := max(now-change.Before[amount], 0)
		adds = adds || more > 0
		change.Use[amount] = before[amount] + more
	}
	return change, adds
}
