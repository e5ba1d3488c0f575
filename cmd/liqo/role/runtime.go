// SPDX-License-Identifier: Apache-2.0

package role

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// mostProcessors is how many processors a role uses that only talks to API servers. These are slower than any of our roles, and on a node with many
// processors Go keeps more threads and memory than such a role needs. The variable GOMAXPROCS overrides it.
const mostProcessors = 2

// Frugal adapts the Go runtime to a role that only talks to API servers, until ctx ends.
func Frugal(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(mostProcessors, runtime.GOMAXPROCS(0)))
	}
	go func() {
		tick := time.NewTicker(burstInterval)
		defer tick.Stop()
		returnMemory(ctx, tick.C, allocated, debug.FreeOSMemory)
	}()
}

// A burst is an interval in which a role allocates burstStart bytes, and all that follow until it allocates less than burstEnd in one.
const (
	burstInterval = 5 * time.Second
	burstStart    = 32 << 20
	burstEnd      = 4 << 20
)

// returnMemory calls free after each burst. Without it, an idle role keeps the garbage of a burst for two minutes, until Go collects it.
func returnMemory(ctx context.Context, ticks <-chan time.Time, allocated func() uint64, free func()) {
	b := bursts{before: allocated()}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		if b.ended(allocated()) {
			free()
		}
	}
}

// bursts recognises the end of a burst.
type bursts struct {
	before uint64
	within bool
}

// ended reports whether a burst ended in the last interval. It gets the bytes that were allocated since the start of the process.
func (b *bursts) ended(allocated uint64) bool {
	in := allocated - b.before
	b.before = allocated
	was := b.within
	b.within = in >= burstStart || was && in >= burstEnd
	return was && !b.within
}

// allocated returns the bytes that were allocated since the start of the process.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
