// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/liqo/playground/internal/fault"
)

const (
	never = time.Duration(math.MaxInt64)
	// minSleep gathers the departures of a busy line into batches instead of one sleep for each packet.
	minSleep = 250 * time.Microsecond
	// batch is the number of packets that the sender takes under one lock, shared by all lines.
	batch = 64
	// bufferSize fits packets of ordinary links; larger ones get a buffer of their own.
	bufferSize = 2048
	// maxSpare buffers (8 MB) are kept for reuse.
	maxSpare = 4096
)

// emulator moves packets from the device through lines back to the device. One goroutine receives, one sends.
type emulator struct {
	device io.ReadWriteCloser
	alarm  *alarm
	start  time.Time

	mu         sync.Mutex
	lines      []*line
	spare      [][]byte
	sleepUntil time.Duration // when the sender wakes without a ring; 0 while it works
	stopping   bool
	passed     uint64 // packets without a line: passed on at once
	ignored    uint64 // packets that are not IPv4: dropped
	failures   uint64 // packets that the kernel refused to take back
}

func newEmulator(device io.ReadWriteCloser) (*emulator, error) {
	alarm, err := newAlarm()
	if err != nil {
		return nil, err
	}
	return &emulator{device: device, alarm: alarm, start: time.Now()}, nil
}

// configure makes the lines equal to the given pairs and returns the changes. It loses no held packet.
func (e *emulator) configure(pairs []fault.Pair) (changes []string) {
	e.mu.Lock()
	for _, l := range e.lines {
		same := func(p fault.Pair) bool { return selectorOf(p) == selectorOf(l.pair) }
		if i := slices.IndexFunc(pairs, same); i < 0 {
			if !l.retired {
				changes = append(changes, "remove line "+l.pair.String())
			}
			l.retired = true
		} else if !l.retired && l.pair != pairs[i] {
			l.change(pairs[i], time.Since(e.start))
			changes = append(changes, fmt.Sprintf("change line %s: delay %s, bandwidth %s", l.pair, l.pair.Delay, l.pair.Bandwidth))
		}
	}
	for _, p := range pairs {
		if e.find(func(l *line) bool { return selectorOf(l.pair) == selectorOf(p) }) == nil {
			e.lines = append(e.lines, &line{pair: p})
			changes = append(changes, fmt.Sprintf("add line %s: delay %s, bandwidth %s", p, p.Delay, p.Bandwidth))
		}
	}
	e.mu.Unlock()
	e.alarm.ring()
	return changes
}

// find returns the line in use for which the condition holds, or nil.
func (e *emulator) find(condition func(*line) bool) *line {
	for _, l := range e.lines {
		if !l.retired && condition(l) {
			return l
		}
	}
	return nil
}

// receive reads packets until the device is closed.
func (e *emulator) receive() error {
	packet := make([]byte, math.MaxUint16)
	for {
		n, err := e.device.Read(packet)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read from %s: %w", Device, err)
		}
		if early, pass := e.admit(packet[:n]); pass {
			e.write(packet[:n])
		} else if early {
			e.alarm.ring()
		}
	}
}

// admit puts a packet on its line. It reports whether the packet departs before the sender wakes, or must be passed on at once.
func (e *emulator) admit(data []byte) (early, pass bool) {
	source, destination, ok := addresses(data)
	now := time.Since(e.start)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !ok {
		e.ignored++
		return false, false
	}
	l := e.find(func(l *line) bool { return l.pair.Source.Contains(source) && l.pair.Destination.Contains(destination) })
	if l == nil {
		e.passed++
		return false, true
	}
	if l.held > maxHeld {
		l.counters.Drops++
		return false, false
	}
	departure, ok := l.schedule.admit(l.pair, now, len(data), rand.Float64())
	if !ok {
		l.counters.Drops++
		return false, false
	}
	l.push(packet{departure: departure, data: append(e.buffer(len(data)), data...)})
	if departure >= e.sleepUntil {
		return false, false
	}
	e.sleepUntil = departure
	return true, false
}

func (e *emulator) buffer(size int) []byte {
	if n := len(e.spare); n > 0 && size <= bufferSize {
		buffer := e.spare[n-1]
		e.spare = e.spare[:n-1]
		return buffer
	}
	return make([]byte, 0, max(size, bufferSize))
}

// send delivers packets when they are due, until stop, and then those that are left.
func (e *emulator) send() error {
	// The thread is ours alone, so that its timers can be exact: the kernel's default slack is 50 µs.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	due := make([][]byte, 0, batch)
	for {
		var next time.Duration
		due, next = e.due(due)
		for _, data := range due {
			e.write(data)
		}
		switch {
		case len(due) > 0:
		case next < 0:
			return nil
		default:
			if err := e.alarm.wait(next); err != nil {
				return err
			}
		}
	}
}

// due returns the packets that depart now, about batch at most. When there are none it returns how long to sleep, never, or a
// negative time to stop. done are the packets of the last call, for reuse.
func (e *emulator) due(done [][]byte) (due [][]byte, sleep time.Duration) {
	now := time.Since(e.start)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, data := range done {
		if cap(data) == bufferSize && len(e.spare) < maxSpare {
			e.spare = append(e.spare, data[:0])
		}
	}
	due = done[:0]
	e.sleepUntil = 0
	next := never
	for _, l := range e.lines {
		// Each line has its share, so that a busy one does not stop the others when the CPU is the limit.
		for range max(1, batch/len(e.lines)) {
			data, ok := l.pop(now)
			if !ok {
				break
			}
			due = append(due, data)
		}
		next = min(next, l.next())
	}
	e.lines = slices.DeleteFunc(e.lines, func(l *line) bool { return l.retired && l.next() == never })
	switch {
	case len(due) > 0:
		return due, 0
	case next == never && e.stopping:
		return due, -1
	case next == never:
		e.sleepUntil = never
		return due, never
	}
	sleep = max(next-now, minSleep)
	e.sleepUntil = now + sleep
	return due, sleep
}

// write gives a packet back to the kernel, which refuses some (no memory, broken header): those are lost, as on any link.
func (e *emulator) write(data []byte) {
	if _, err := e.device.Write(data); err != nil {
		e.mu.Lock()
		e.failures++
		e.mu.Unlock()
	}
}

// stop makes send deliver the held packets at once and return. Later packets pass undelayed.
func (e *emulator) stop() {
	e.mu.Lock()
	e.stopping = true
	for _, l := range e.lines {
		l.retired = true
	}
	e.mu.Unlock()
	e.alarm.ring()
}

// Status is the configuration of the emulator with its counters since the start.
type Status struct {
	Pairs []PairStatus `json:"pairs"`
	// Passed counts packets that reached the device without a pair (only while a pair is being removed), Ignored those
	// that are not IPv4, Failures those that the kernel did not take back.
	Passed   uint64 `json:"passed"`
	Ignored  uint64 `json:"ignored"`
	Failures uint64 `json:"failures"`
}

// PairStatus is a pair in force with its counters.
type PairStatus struct {
	fault.Pair
	Counters
}

func (e *emulator) status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	status := Status{Pairs: []PairStatus{}, Passed: e.passed, Ignored: e.ignored, Failures: e.failures}
	for _, l := range e.lines {
		if !l.retired {
			status.Pairs = append(status.Pairs, PairStatus{Pair: l.pair, Counters: l.counters})
		}
	}
	return status
}

// addresses of an IPv4 packet; ok is false for anything else.
func addresses(packet []byte) (source, destination netip.Addr, ok bool) {
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return source, destination, false
	}
	return netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20])), true
}
