// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"math/rand"
	"testing"
	"time"
)

// road carries packets up to a size, and loses a share of them.
type road struct {
	t       *testing.T
	path    path
	now     time.Time
	carries int
	device  int
	loss    float64
	random  *rand.Rand
	sent    int
	// out reports whether nothing passes at a time; echoed is when the newest answered small packet left.
	out     func(time.Duration) bool
	echoed  time.Time
	results []int
}

func (r *road) run(span time.Duration) {
	for end := r.now.Add(span); r.now.Before(end); r.now = r.now.Add(10 * time.Millisecond) {
		for {
			size := r.path.step(r.now, true, r.device, 5*time.Millisecond, r.echoed)
			if size == 0 {
				break
			}
			if size > r.device || size < smallest {
				r.t.Fatalf("asked for %d bytes, device %d", size, r.device)
			}
			r.sent++
			if r.out != nil && r.out(r.now.Sub(start)) {
				continue
			}
			if r.random.Float64() >= r.loss {
				r.echoed = r.now
			}
			if size <= r.carries && r.random.Float64() >= r.loss {
				r.path.receive(r.now, size)
			}
		}
		if n := len(r.results); n == 0 || r.results[n-1] != r.path.mtu {
			r.results = append(r.results, r.path.mtu)
		}
		if next := r.path.next(); !next.After(r.now) && !next.Equal(r.now) {
			r.t.Fatalf("next %v is before now %v (phase %v)", next, r.now, r.path.phase)
		}
	}
}

func newRoad(t *testing.T, carries, device int) *road {
	return &road{t: t, now: start, carries: carries, device: device, random: rand.New(rand.NewSource(1))}
}

func TestPathFindsEachSize(t *testing.T) {
	for carries := smallest; carries <= 1500; carries += 7 {
		r := newRoad(t, carries, 1420)
		r.run(8 * time.Second)
		if want := min(carries, 1420); r.path.mtu != want {
			t.Errorf("road for %d: found %d", carries, r.path.mtu)
		}
	}
}

func TestPathUsualCaseIsOnePacket(t *testing.T) {
	r := newRoad(t, 1420, 1420)
	r.run(time.Second)
	if r.sent != 1 || r.path.mtu != 1420 {
		t.Errorf("%d packets for %d", r.sent, r.path.mtu)
	}
	r.run(60 * time.Second)
	if r.sent > 7 {
		t.Errorf("%d packets in a minute: one each 10 s would do", r.sent)
	}
}

func TestPathFollowsTheRoad(t *testing.T) {
	r := newRoad(t, 1420, 1420)
	r.run(20 * time.Second)
	r.carries = 1300
	r.run(20 * time.Second)
	if r.path.mtu != 1300 {
		t.Errorf("road shrank to 1300: %d", r.path.mtu)
	}
	for _, result := range r.results[2:] {
		if result > 1300 {
			t.Errorf("results %v: once 1420 is in doubt, no result may be above 1300", r.results)
		}
	}
	r.carries = 1400
	r.run(growEvery + 20*time.Second)
	if r.path.mtu != 1400 {
		t.Errorf("road grew to 1400: %d", r.path.mtu)
	}
	r.device = 1380
	r.run(5 * time.Second)
	if r.path.mtu != 1380 {
		t.Errorf("device of 1380: %d", r.path.mtu)
	}
}

func TestPathTooSmallForAnything(t *testing.T) {
	r := newRoad(t, 500, 1420)
	r.run(10 * time.Second)
	if r.path.mtu != 0 {
		t.Errorf("found %d", r.path.mtu)
	}
	r.carries = 1420
	r.run(20 * time.Second)
	if r.path.mtu != 1420 {
		t.Errorf("found %d after it was mended", r.path.mtu)
	}
}

func TestPathStandsLoss(t *testing.T) {
	r := newRoad(t, 1350, 1420)
	r.loss = 0.05
	r.run(10 * time.Minute)
	if r.path.mtu != 1350 {
		t.Errorf("5 %% loss: found %d", r.path.mtu)
	}
}

// An outage loses packets of all sizes, and proves nothing about any size.
func TestPathStandsOutages(t *testing.T) {
	for _, lasts := range []time.Duration{600 * time.Millisecond, time.Second, 1500 * time.Millisecond} {
		for phase := time.Duration(0); phase < verifyEvery; phase += 50 * time.Millisecond {
			r := newRoad(t, 1420, 1420)
			from := 20*time.Second + phase
			r.out = func(at time.Duration) bool { return at >= from && at < from+lasts }
			r.run(60 * time.Second)
			if len(r.results) != 1 || r.path.mtu != 1420 {
				t.Fatalf("%v without an answer, %v after the beginning: found %v", lasts, from, r.results)
			}
		}
	}
	// An outage that ends on another road does not hide the new size.
	r := newRoad(t, 1420, 1420)
	r.out = func(at time.Duration) bool { return at >= 19*time.Second && at < 21*time.Second }
	r.run(19 * time.Second)
	r.carries = 1300
	r.run(20 * time.Second)
	if r.path.mtu != 1300 {
		t.Errorf("another road after an outage: found %d", r.path.mtu)
	}
}

// After the target was down, the known size is tried again at once.
func TestPathSearchesAgainAfterDown(t *testing.T) {
	r := newRoad(t, 1300, 1420)
	r.run(20 * time.Second)
	r.path.step(r.now, false, r.device, 0, r.echoed)
	r.carries = 1420
	r.run(time.Second)
	if r.path.mtu != 1420 {
		t.Errorf("a second after it is up again: %d", r.path.mtu)
	}
}

func TestPathRestsWhileDown(t *testing.T) {
	r := newRoad(t, 1420, 1420)
	r.run(time.Second)
	if size := r.path.step(r.now.Add(time.Hour), false, 1420, 0, time.Time{}); size != 0 || r.path.mtu != 1420 {
		t.Errorf("down: sends %d, result %d; want silence, and the last result", size, r.path.mtu)
	}
	r.now = r.now.Add(time.Hour)
	r.carries = 1250
	r.run(10 * time.Second)
	if r.path.mtu != 1250 {
		t.Errorf("up again on another road: %d", r.path.mtu)
	}
}
