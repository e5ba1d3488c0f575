// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestPacer: a client that changes a copy at once after each correction is corrected some times in the first minute, and every five minutes in the end. Another
// object is not slowed, and neither is this one after it has been left alone.
func TestPacer(t *testing.T) {
	var b pacer
	key, other := types.NamespacedName{Namespace: "shop", Name: "lamp"}, types.NamespacedName{Namespace: "shop", Name: "other"}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var at []time.Duration
	for now := start; now.Sub(start) < time.Hour; {
		wait := b.wait(key, now)
		if wait == 0 {
			at = append(at, now.Sub(start))
			wait = time.Millisecond // the other client
		}
		now = now.Add(wait)
	}
	minute := 0
	for _, one := range at {
		if one < time.Minute {
			minute++
		}
	}
	if minute < 5 || minute > 10 || len(at) < 15 || len(at) > 30 {
		t.Errorf("%d corrections in a minute and %d in an hour: %v", minute, len(at), at)
	}
	if last := at[len(at)-1] - at[len(at)-2]; last < lastCorrection || last > lastCorrection+time.Second {
		t.Errorf("the last ones are %v apart", last)
	}
	now := start.Add(time.Hour)
	if wait := b.wait(other, now); wait != 0 {
		t.Errorf("another object waits for %v", wait)
	}
	if wait := b.wait(key, now.Add(forgiveAfter+time.Second)); wait != 0 {
		t.Errorf("after a long rest it waits for %v", wait)
	}
	b.forget(key)
	if len(b.changed) != 1 {
		t.Errorf("an object that is gone is remembered: %v", b.changed)
	}
}
