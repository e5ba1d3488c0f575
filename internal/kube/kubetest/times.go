// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"slices"
	"time"
)

// Times is how long something took each time that it was done, the fastest first.
func Times(count int, do func(i int)) []time.Duration {
	took := make([]time.Duration, count)
	for i := range took {
		start := time.Now()
		do(i)
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took
}
