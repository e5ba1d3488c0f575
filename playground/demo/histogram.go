// SPDX-License-Identifier: Apache-2.0

package main

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

// histogram counts durations. The zero value is empty and ready.
type histogram struct {
	buckets  [(64 - histogramBits) * histogramParts]uint64
	count    uint64
	sum      time.Duration
	min, max time.Duration
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucket(d)]++
	if h.count == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.count++
	h.sum += d
}

func (h *histogram) merge(other *histogram) {
	if other.count == 0 {
		return
	}
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	if h.count == 0 || other.min < h.min {
		h.min = other.min
	}
	h.max = max(h.max, other.max)
	h.count += other.count
	h.sum += other.sum
}

// quantile is the smallest duration that the share q (0 to 1) of all does not exceed,
// rounded up to the end of its bucket; 0 if there are none.
func (h *histogram) quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := uint64(q*float64(h.count) + 0.5)
	rank = min(max(rank, 1), h.count)
	var seen uint64
	for i, n := range h.buckets {
		if seen += n; seen >= rank {
			return min(max(bucketEnd(i), h.min), h.max)
		}
	}
	return h.max
}

func (h *histogram) mean() time.Duration {
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
