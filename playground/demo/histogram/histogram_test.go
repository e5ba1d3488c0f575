// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"math"
	"testing"
	"time"
)

func TestBucketsAreExactEnough(t *testing.T) {
	last := -1
	for d := time.Duration(0); d >= 0 && d < math.MaxInt64/2; d += d/200 + 1 {
		i := bucket(d)
		if i < last || i > last+1 {
			t.Fatalf("%d falls into bucket %d after %d", d, i, last)
		}
		last = i
		if end := bucketEnd(i); end < d || float64(end-d) > float64(d)/64 || bucket(end) != i || bucket(end+1) != i+1 {
			t.Fatalf("bucket %d of %d ends at %d", i, d, end)
		}
	}
	if last := bucket(math.MaxInt64); last >= len(Histogram{}.buckets) {
		t.Errorf("largest duration falls into bucket %d of %d", last, len(Histogram{}.buckets))
	}
}

func TestQuantiles(t *testing.T) {
	var odd, even, empty Histogram
	for i := 1; i <= 1000; i++ {
		h := &odd
		if i%2 == 0 {
			h = &even
		}
		h.Add(time.Duration(i) * time.Millisecond)
	}
	odd.Merge(&even)
	odd.Merge(&empty)
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 500, 0.9: 900, 0.99: 990, 1: 1000} {
		want *= time.Millisecond
		if got := odd.Quantile(q); got < want || float64(got-want) > float64(want)/64 {
			t.Errorf("quantile %g is %s, want %s and at most 1/64 more", q, got, want)
		}
	}
	if odd.Min != time.Millisecond || odd.Max != time.Second || odd.Mean() != 500500*time.Microsecond || odd.count != 1000 {
		t.Errorf("min %s max %s mean %s count %d", odd.Min, odd.Max, odd.Mean(), odd.count)
	}
	if empty.Quantile(0.5) != 0 || empty.Mean() != 0 {
		t.Error("an empty histogram is not zero")
	}
}
