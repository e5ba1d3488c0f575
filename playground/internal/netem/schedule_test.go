// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"math/rand/v2"
	"testing"
	"time"

	"liqo.io/liqo/playground/internal/fault"
)

const ms = time.Millisecond

func TestScheduleDepartures(t *testing.T) {
	type arrival struct {
		at     time.Duration
		size   int
		random float64
		want   time.Duration // -1: dropped
	}
	for _, test := range []struct {
		name     string
		pair     fault.Pair
		arrivals []arrival
	}{
		{"nothing", fault.Pair{}, []arrival{{at: 5 * ms, size: 1500, want: 5 * ms}, {at: 5 * ms, size: 1500, want: 5 * ms}}},
		{
			"delay",
			fault.Pair{Delay: fault.Delay{Mean: 50 * ms}},
			[]arrival{{at: 0, size: 100, want: 50 * ms}, {at: 1 * ms, size: 100, want: 51 * ms}, {at: 200 * ms, size: 100, want: 250 * ms}},
		},
		{
			"jitter",
			fault.Pair{Delay: fault.Delay{Mean: 50 * ms, Jitter: 10 * ms}},
			[]arrival{{at: 0, random: 0.5, want: 50 * ms}, {at: 100 * ms, random: 0, want: 140 * ms}, {at: 200 * ms, random: 0.75, want: 255 * ms}},
		},
		{
			"jitter does not reorder",
			fault.Pair{Delay: fault.Delay{Mean: 50 * ms, Jitter: 10 * ms}},
			[]arrival{{at: 0, random: 0.75, want: 55 * ms}, {at: 1 * ms, random: 0, want: 55 * ms}, {at: 20 * ms, random: 0, want: 60 * ms}},
		},
		{
			"bandwidth: 1000 bytes at 8 mbit take 1 ms",
			fault.Pair{Bandwidth: 8 * fault.Megabit},
			[]arrival{{at: 0, size: 1000, want: 1 * ms}, {at: 0, size: 1000, want: 2 * ms}, {at: 10 * ms, size: 2000, want: 12 * ms}},
		},
		{
			"bandwidth and delay",
			fault.Pair{Bandwidth: 8 * fault.Megabit, Delay: fault.Delay{Mean: 50 * ms}},
			[]arrival{{at: 0, size: 1000, want: 51 * ms}, {at: 0, size: 1000, want: 52 * ms}},
		},
		{
			"100 ms of buffer",
			fault.Pair{Bandwidth: 8 * fault.Megabit},
			[]arrival{{at: 0, size: 60000, want: 60 * ms}, {at: 0, size: 41000, want: 101 * ms}, {at: 0, size: 1, want: -1}, {at: 1 * ms, size: 1000, want: 102 * ms}},
		},
		{
			"slow lines take the first burst of TCP",
			fault.Pair{Bandwidth: 80 * fault.Kilobit},
			[]arrival{{at: 0, size: 15000, want: 1500 * ms}, {at: 0, size: 10000, want: 2500 * ms}, {at: 0, size: 1, want: -1}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s schedule
			for i, a := range test.arrivals {
				got, ok := s.admit(test.pair, a.at, a.size, a.random)
				if !ok {
					got = -1
				}
				if got != a.want {
					t.Errorf("packet %d: departs at %s, want %s", i, got, a.want)
				}
			}
		})
	}
}

// TestScheduleOrder admits random traffic with changing values: no packet may depart before the one before it, or before it came.
func TestScheduleOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	l := line{}
	var now, last time.Duration
	for i := range 100_000 {
		now += time.Duration(random.Int64N(int64(ms)))
		if random.IntN(1000) == 0 {
			mean := time.Duration(random.Int64N(int64(100 * ms)))
			l.change(fault.Pair{Delay: fault.Delay{Mean: mean, Jitter: mean / 2}, Bandwidth: fault.Rate(random.Uint64N(100)) * fault.Megabit}, now)
			last = 0 // packets on the line were rescheduled; compare below those that are still on it
			for _, p := range l.packets[l.first:] {
				if p.departure < last || p.departure > now+mean+mean/2 {
					t.Fatalf("packet %d: after a change at %s one departs at %s, after %s", i, now, p.departure, last)
				}
				last = p.departure
			}
		}
		if departure, ok := l.schedule.admit(l.pair, now, random.IntN(1500), random.Float64()); ok {
			if departure < last || departure < now {
				t.Fatalf("packet %d: arrives at %s, departs at %s, the one before at %s", i, now, departure, last)
			}
			last = departure
			l.push(packet{departure: departure, data: []byte{1}})
		}
		for _, ok := l.pop(now); ok; _, ok = l.pop(now) {
		}
	}
	if l.counters.Packets == 0 || l.counters.Queue != len(l.packets)-l.first || l.held < l.counters.Queue {
		t.Errorf("counters %+v, held %d, but %d packets on the line", l.counters, l.held, len(l.packets)-l.first)
	}
}

func TestLine(t *testing.T) {
	var l line
	if l.next() != never {
		t.Errorf("an empty line has a packet due at %s", l.next())
	}
	for i := range 10 {
		l.push(packet{departure: time.Duration(i+1) * ms, data: []byte{byte(i)}})
	}
	if _, ok := l.pop(ms - 1); ok {
		t.Error("a packet left before its departure")
	}
	for i := range 5 {
		if data, ok := l.pop(5 * ms); !ok || data[0] != byte(i) {
			t.Errorf("got packet %v, %v, want %d", data, ok, i)
		}
	}
	if _, ok := l.pop(5 * ms); ok {
		t.Error("the sixth packet left with the fifth")
	}
	l.retired = true
	for i := 5; i < 10; i++ {
		if data, ok := l.pop(5 * ms); !ok || data[0] != byte(i) {
			t.Errorf("retired line: got packet %v, %v, want %d at once", data, ok, i)
		}
	}
	if want := (Counters{Packets: 10, Bytes: 10}); l.counters != want || l.held != 0 || l.next() != never {
		t.Errorf("got counters %+v, held %d, next %s; want %+v and an empty line", l.counters, l.held, l.next(), want)
	}
}
