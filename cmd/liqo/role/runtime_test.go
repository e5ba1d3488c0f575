// SPDX-License-Identifier: Apache-2.0

package role

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// TestBursts: memory is given back once after a burst, and never by a process that was idle or is busy.
func TestBursts(t *testing.T) {
	const idle, some, busy = burstEnd - 1, burstEnd, burstStart
	for _, test := range []struct {
		name string
		in   []uint64 // bytes in each interval
		free int
		last bool
	}{
		{"idle", []uint64{idle, idle, idle}, 0, false},
		{"less than a burst", []uint64{some, burstStart - 1, some, idle}, 0, false},
		{"a burst that goes on", []uint64{busy, some, busy, some}, 0, false},
		{"after a burst", []uint64{idle, busy, some, idle}, 1, true},
		{"once", []uint64{busy, idle, idle, some, idle}, 1, false},
		{"after each burst", []uint64{busy, idle, busy, idle}, 2, true},
	} {
		b, total, freed, last := bursts{before: 5}, uint64(5), 0, false
		for _, in := range test.in {
			total += in
			if last = b.ended(total); last {
				freed++
			}
		}
		if freed != test.free || last != test.last {
			t.Errorf("%s: freed %d times, in the last interval %t, want %d, %t", test.name, freed, last, test.free, test.last)
		}
	}
}

// TestReturnMemory: real allocations are seen, and the loop ends with its context.
func TestReturnMemory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ticks, read, freed, ended := make(chan time.Time), make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		returnMemory(ctx, ticks, func() uint64 { defer func() { read <- struct{}{} }(); return allocated() }, func() { freed <- struct{}{} })
	}()
	<-read
	var kept [][]byte
	for range 2 * burstStart >> 20 {
		kept = append(kept, make([]byte, 1<<20))
	}
	runtime.KeepAlive(kept)
	for range 2 {
		ticks <- time.Now()
		<-read
	}
	<-freed
	cancel()
	<-ended
}

// TestFrugal: a role of the control plane uses few processors, unless the variable sets another number.
func TestFrugal(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	runtime.GOMAXPROCS(7)
	t.Setenv("GOMAXPROCS", "7")
	Frugal(t.Context())
	if now := runtime.GOMAXPROCS(0); now != 7 {
		t.Errorf("with GOMAXPROCS=7: %d processors", now)
	}
	t.Setenv("GOMAXPROCS", "")
	Frugal(t.Context())
	if now := runtime.GOMAXPROCS(0); now != mostProcessors {
		t.Errorf("%d processors, want %d", now, mostProcessors)
	}
	runtime.GOMAXPROCS(1)
	Frugal(t.Context())
	if now := runtime.GOMAXPROCS(0); now != 1 {
		t.Errorf("%d processors, where there is one", now)
	}
}
