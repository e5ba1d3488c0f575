// SPDX-License-Identifier: Apache-2.0

package ledger

import "k8s.io/apimachinery/pkg/runtime/schema"

// Early returns what a peer gets before its objects are listed for the first time: a part of each bound, beside what it had. counted reports
// of which kinds the number is known already.
func (l Limits) Early(counted func(schema.GroupResource) bool) Limits {
	const part = 10
	limits := Limits{Objects: map[schema.GroupResource]int64{}}
	for kind, most := range l.Objects {
		if !counted(kind) {
			limits.Objects[kind] = max(most/part, 1)
		}
	}
	for amount, most := range l.Use {
		if most > 0 {
			limits.Use[amount] = max(most/part, 1)
		}
	}
	return limits
}

// Added returns what a change adds to what a peer had when the ledger began, and whether it adds anything. An object that is there is no further
// one: only what its updates add counts. It adds up, also if one of them takes something away, because the API server may not store that.
func (l *Ledger) Added(change Change) (Change, bool) {
	change.Written = false
	if change.New {
		return change, true
	}
	change.Key.Resource.Resource += "/update" // no kind, so that the number is not bounded
	before, adds := l.Of(change.Key), false
	for amount, now := range change.Use {
		more := max(now-change.Before[amount], 0)
		adds = adds || more > 0
		change.Use[amount] = before[amount] + more
	}
	return change, adds
}
