// SPDX-License-Identifier: Apache-2.0

package processors

import (
	"context"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// WireGuard in this process hands each packet from goroutine to goroutine. On several processors each step wakes a thread, which costs more than it gains until
// one processor is not enough: requests were 1.3 times as many on one of two.
const (
	// busyShare and calmShare are the shares of one processor from which on the process gets more, and below which it gets one again.
	busyShare, calmShare = 0.8, 0.5
	// adjustEvery is how often that is decided: each change stops the process for some microseconds. calmFor is how long it must be calm before.
	adjustEvery, calmFor = time.Second, 10
)

// processors decides on how many processors the process runs.
type processors struct {
	// all is how many there are, now how many are used, quiet how many seconds the process was calm.
	all, now, quiet int
}

// step returns how many to use. used is the processor time since the last call, in processors.
func (p *processors) step(used float64) int {
	switch {
	case used >= busyShare && p.now == 1:
		p.now = max(1, p.all/2) // the kernel needs the others for the same packets
		p.quiet = 0
	case used >= calmShare:
		p.quiet = 0
	case p.now > 1:
		if p.quiet++; p.quiet >= calmFor {
			p.now = 1
		}
	}
	return p.now
}

// Adjust keeps the number of processors right until ctx ends, unless the variable GOMAXPROCS sets it.
func Adjust(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	p := &processors{all: runtime.GOMAXPROCS(0), now: 1}
	runtime.GOMAXPROCS(p.now)
	defer runtime.GOMAXPROCS(p.all)
	tick := time.NewTicker(adjustEvery)
	defer tick.Stop()
	at, before := time.Now(), processorTime()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		used, was := processorTime(), p.now
		share := (used - before).Seconds() / time.Since(at).Seconds()
		at, before = time.Now(), used
		if now := p.step(share); now != was {
			runtime.GOMAXPROCS(now)
		}
	}
}

// processorTime is what the process has used.
func processorTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0 // then one processor stays
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
