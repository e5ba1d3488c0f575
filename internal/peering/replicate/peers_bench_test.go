// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// BenchmarkPeers measures what each peer costs the controller manager of a cluster that peers with many: memory, goroutines, and processor time while nothing
// happens, with the intervals that users get. All peers are tenants of one API server.
func BenchmarkPeers(bench *testing.B) {
	const idle = 30 * time.Second
	for _, peers := range []int{1, 20, 100} {
		bench.Run(fmt.Sprint(peers), func(bench *testing.B) {
			b := newEnv(bench)
			b.start(func(o *Options) {
				o.ProbeInterval, o.ProbeTimeout, o.RetryInterval = probeInterval, probeTimeout, retryInterval
			})
			others := []*env{b}
			for range peers {
				one := newEnv(bench)
				one.origin, one.r = b.origin, b.r
				others = append(others, one)
			}
			b.connect(b.peer("")) // what all peers share is not counted
			b.ready()
			for bench.Loop() {
				memory, goroutines := settled()
				for _, one := range others[1:] {
					one.connect(one.peer(""))
				}
				for _, one := range others[1:] {
					one.ready()
				}
				more, running := settled()
				before := processors(bench)
				bench.StopTimer()
				time.Sleep(idle) // what is measured
				bench.StartTimer()
				after := processors(bench)
				n := float64(peers)
				bench.ReportMetric((more-memory)/n/1024, "KiB/peer")
				bench.ReportMetric(float64(running-goroutines)/n, "goroutines/peer")
				bench.ReportMetric((after-before).Seconds()*1000*float64(time.Minute/idle), "ms-CPU/min")
				for _, one := range others[1:] {
					b.r.Disconnect(one.provider)
				}
			}
		})
	}
}

// settled returns the bytes of heap and stacks in use, and the number of goroutines.
func settled() (bytes float64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}

// processors returns the processor time of this process.
func processors(bench *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		bench.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
