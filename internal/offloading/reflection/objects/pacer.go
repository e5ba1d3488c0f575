// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// freeCorrections of a copy happen at once; each further one waits twice as long after the last, from firstCorrection up to lastCorrection.
	freeCorrections                 = 3
	firstCorrection, lastCorrection = time.Second, 5 * time.Minute
	// forgiveAfter is how long a copy must stay as it is until its corrections happen at once again.
	forgiveAfter = 2 * lastCorrection
)

// pacer slows the corrections of copies that another client keeps changing, such as an autoscaler or the operator itself: the two would
// overwrite each other as fast as both clusters can.
type pacer struct {
	mu      sync.Mutex
	changed map[types.NamespacedName]corrections
}

// corrections of one copy.
type corrections struct {
	number int
	last   time.Time
}

// wait returns how long to wait before a copy is corrected; 0: it may be now, and counts.
func (b *pacer) wait(key types.NamespacedName, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = map[types.NamespacedName]corrections{}
	}
	is := b.changed[key]
	if now.Sub(is.last) > forgiveAfter {
		is = corrections{}
	}
	if is.number >= freeCorrections {
		pause := min(firstCorrection<<min(is.number-freeCorrections, 20), lastCorrection)
		if left := is.last.Add(pause).Sub(now); left > 0 {
			return left
		}
	}
	b.changed[key] = corrections{is.number + 1, now}
	return 0
}

// forget drops what is known of an object that is gone.
func (b *pacer) forget(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.changed, key)
}
