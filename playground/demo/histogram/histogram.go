// SPDX-License-Identifier: Apache-2.0

// Package histogram counts durations at a fixed size. It must not know what lasted so long. Proof: histogram_test.go.
package histogram

import (
	"math/bits"
	"time"
)

// Buckets of a histogram: each power of two of nanoseconds is cut into equal parts, so
// a value is known to better than 1 part in 64, at a fixed size of 30 KiB.
const (
	histogramBits  = 6
	histogramParts = 1 << histogramBits
)

// Histogram counts durations. The zero value is empty and ready.
type Histogram struct {
	buckets  [(64 - histogramBits) * histogramParts]uint64
	count    uint64
	sum      time.Duration
	Min, Max time.Duration
}

func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucket(d)]++
	if h.count == 0 || d < h.Min {
		h.Min = d
	}
	h.Max = max(h.Max, d)
	h.count++
	h.sum += d
}

func (h *Histogram) Merge(other *Histogram) {
	if other.count == 0 {
		return
	}
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	if h.count == 0 || other.Min < h.Min {
		h.Min = other.Min
	}
	h.Max = max(h.Max, other.Max)
	h.count += other.count
	h.sum += other.sum
}

// Quantile is the smallest duration that the share q (0 to 1) of all does not exceed,
// rounded up to the end of its bucket; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := uint64(q*float64(h.count) + 0.5)
	rank = min(max(rank, 1), h.count)
	var seen uint64
	for i, n := range h.buckets {
		if seen += n; seen >= rank {
			return min(max(bucketEnd(i), h.Min), h.Max)
		}
	}
	return h.Max
}

func (h *Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return h.sum / time.Duration(h.count)
}

func bucket(d time.Duration) int {
	shift := bits.Len64(uint64(d)) - histogramBits - 1
	if shift <= 0 {
		return int(d)
	}
	return shift*histogramParts + int(uint64(d)>>shift)
}

// bucketEnd is the largest duration that falls into bucket i.
func bucketEnd(i int) time.Duration {
	if i < 2*histogramParts {
		return time.Duration(i)
	}
	shift := i/histogramParts - 1
	return time.Duration(uint64(i-shift*histogramParts+1)<<shift) - 1
}
