// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"math/rand"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// way simulates a leg: who answers, and how long a reply takes.
type way struct {
	leg     *leg
	now     time.Time
	answers func(at time.Duration) bool
	takes   time.Duration
	late    func(at time.Duration) time.Duration // instead of takes, if replies take now this long and now that
	flying  []flying
	changes []change
}

type flying struct {
	sequence uint64
	arrives  time.Time
}

type change struct {
	at    time.Duration
	state State
}

func (w *way) run(until time.Duration) {
	for ; w.now.Sub(start) < until; w.now = w.now.Add(time.Millisecond) {
		before := w.leg.state
		for len(w.flying) > 0 && !w.flying[0].arrives.After(w.now) {
			w.leg.hear(w.now, w.flying[0].sequence)
			w.flying = w.flying[1:]
		}
		w.leg.judge(w.now)
		if !w.leg.due(w.now).After(w.now) {
			sequence := w.leg.send(w.now)
			if w.answers(w.now.Sub(start)) {
				takes := w.takes
				if w.late != nil {
					takes = w.late(w.now.Sub(start))
				}
				w.flying = append(w.flying, flying{sequence, w.now.Add(takes)})
			}
		}
		if w.leg.state != before {
			w.changes = append(w.changes, change{w.now.Sub(start), w.leg.state})
		}
	}
}

func TestLeg(t *testing.T) {
	fast := Pace{Up: 50 * time.Millisecond, Other: 50 * time.Millisecond}
	slow := Pace{Up: 500 * time.Millisecond, Other: 200 * time.Millisecond}
	always := func(time.Duration) bool { return true }
	not := func(from, to time.Duration) func(time.Duration) bool {
		return func(at time.Duration) bool { return at < from || at >= to }
	}
	type span struct{ from, to time.Duration }
	ms := time.Millisecond
	for name, test := range map[string]struct {
		pace    Pace
		takes   time.Duration
		answers func(time.Duration) bool
		until   time.Duration
		want    []State
		when    []span
	}{
		"up after two replies":         {fast, 1 * ms, always, 2 * time.Second, []State{Up}, []span{{50 * ms, 60 * ms}}},
		"slow pace":                    {slow, 1 * ms, always, 5 * time.Second, []State{Up}, []span{{50 * ms, 60 * ms}}},
		"long round trip is not loss":  {fast, 400 * ms, always, 5 * time.Second, []State{Up}, []span{{450 * ms, 460 * ms}}},
		"nobody there":                 {fast, 1 * ms, func(time.Duration) bool { return false }, 5 * time.Second, []State{Down}, []span{{time.Second, 1010 * ms}}},
		"three lost":                   {fast, 1 * ms, not(time.Second, time.Hour), 5 * time.Second, []State{Up, Down}, []span{{0, 100 * ms}, {1100 * ms, 1180 * ms}}},
		"two lost are forgiven":        {fast, 1 * ms, not(time.Second, 1100*ms), 5 * time.Second, []State{Up}, nil},
		"comes back":                   {fast, 1 * ms, not(time.Second, 2*time.Second), 5 * time.Second, []State{Up, Down, Up}, []span{{0, 100 * ms}, {1100 * ms, 1180 * ms}, {2050 * ms, 2110 * ms}}},
		"slow pace hurries when late":  {slow, 1 * ms, not(time.Second, 1900*ms), 9 * time.Second, []State{Up}, nil},
		"slow pace, down after three":  {slow, 1 * ms, not(time.Second, time.Hour), 9 * time.Second, []State{Up, Down}, []span{{0, 300 * ms}, {2 * time.Second, 2530 * ms}}},
		"new, until it answers":        {slow, 1 * ms, not(0, 2*time.Second), 5 * time.Second, []State{Down, Up}, []span{{1520 * ms, 1530 * ms}, {2050 * ms, 2110 * ms}}},
		"not for ever":                 {slow, 1 * ms, not(0, 10*time.Second), 15 * time.Second, []State{Down, Up}, []span{{1520 * ms, 1530 * ms}, {10200 * ms, 10410 * ms}}},
		"a reply now and then is none": {fast, 1 * ms, func(at time.Duration) bool { return at%time.Second < 50*ms }, 9 * time.Second, []State{Down}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := &way{leg: newLeg(start, test.pace), now: start, answers: test.answers, takes: test.takes}
			w.run(test.until)
			if len(w.changes) != len(test.want) {
				t.Fatalf("changes %v, want states %v", w.changes, test.want)
			}
			for i, change := range w.changes {
				if change.state != test.want[i] {
					t.Errorf("change %d: %v, want %v", i, change, test.want[i])
				}
				if test.when != nil && (change.at < test.when[i].from || change.at > test.when[i].to) {
					t.Errorf("change %d to %v at %v, want %v", i, change.state, change.at, test.when[i])
				}
			}
		})
	}
}

func TestLegStatistics(t *testing.T) {
	w := &way{leg: newLeg(start, Pace{Up: 100 * time.Millisecond, Other: 100 * time.Millisecond}), now: start, takes: 30 * time.Millisecond}
	count := 0
	w.answers = func(time.Duration) bool { count++; return count%4 != 0 }
	w.run(20 * time.Second)
	stand := w.leg.stand(w.now)
	if stand.Lost < 0.2 || stand.Lost > 0.3 {
		t.Errorf("lost %v of every fourth", stand.Lost)
	}
	if stand.RoundTrip != 30*time.Millisecond {
		t.Errorf("round trip %v", stand.RoundTrip)
	}
	if stand.State != Up {
		t.Errorf("state %v: a quarter of loss is not down", stand.State)
	}
}

// Chance alone does not exhaust the patience, and no silence is suffered for long.
func TestLegPatience(t *testing.T) {
	ms := time.Millisecond
	for name, test := range map[string]struct {
		takes time.Duration
		lost  float64
		most  time.Duration
	}{
		"next door":                         {1 * ms, 0, 1600 * ms},
		"far":                               {300 * ms, 0, 2200 * ms},
		"a little loss":                     {20 * ms, 0.02, 2 * time.Second},
		"far, and a tenth lost each way":    {150 * ms, 0.19, 3 * time.Second},
		"farther, and a tenth lost":         {600 * ms, 0.1, 4500 * ms}, // the loss that 64 probes show varies
		"a quarter lost, nobody is patient": {50 * ms, 0.25, 3500 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			random, longest, impatient := rand.New(rand.NewSource(1)), time.Duration(0), 0
			w := &way{leg: newLeg(start, Pace{Up: 500 * ms, Other: 200 * ms}), now: start, takes: test.takes}
			w.answers = func(time.Duration) bool { return random.Float64() >= test.lost }
			for at := 10 * time.Second; at < time.Hour; at += 20 * ms {
				w.run(at)
				if silent := w.now.Sub(w.leg.last); silent > time.Second {
					impatient++
					if patience := w.leg.stand(w.now).Patience; silent > patience {
						t.Errorf("at %v: silent for %v, patience %v", at, silent, patience)
					}
				}
			}
			t.Logf("more than a second without a reply: %v in all", time.Duration(impatient)*20*ms)
			w.answers = func(time.Duration) bool { return false }
			for end := w.now.Add(30 * time.Second); w.now.Before(end); {
				w.run(w.now.Sub(start) + 20*ms)
				longest = max(longest, w.leg.stand(w.now).Patience)
			}
			if longest > test.most {
				t.Errorf("patience up to %v", longest)
			}
		})
	}
}

// After an outage it is as before: what was lost in it is not the way's loss.
func TestLegPatienceAfterOutage(t *testing.T) {
	w := &way{leg: newLeg(start, Pace{Up: 500 * time.Millisecond, Other: 200 * time.Millisecond}), now: start, takes: time.Millisecond}
	w.answers = func(at time.Duration) bool { return at < time.Second || at > 20*time.Second }
	w.run(30 * time.Second)
	if stand := w.leg.stand(w.now); stand.State != Up || stand.Lost < 0.3 || stand.Patience > 1600*time.Millisecond {
		t.Errorf("%+v", stand)
	}
}

func TestLegBelievesOnlyWhatItAsked(t *testing.T) {
	l := newLeg(start, Pace{Up: time.Second, Other: time.Second})
	sequence := l.send(start)
	for range 5 {
		l.hear(start.Add(time.Millisecond), sequence)
	}
	l.hear(start.Add(time.Millisecond), 0)
	l.hear(start.Add(time.Millisecond), sequence+remembered)
	l.hear(start.Add(time.Millisecond), 12345)
	if l.state == Up || l.row != 1 {
		t.Errorf("state %v after one reply, repeated, and made-up ones (row %d)", l.state, l.row)
	}
}

func TestLegExcusesOwnStall(t *testing.T) {
	w := &way{leg: newLeg(start, Pace{Up: 50 * time.Millisecond, Other: 50 * time.Millisecond}), now: start, takes: time.Millisecond, answers: func(time.Duration) bool { return true }}
	w.run(time.Second)
	later := w.now.Add(5 * time.Second)
	w.leg.excuse(later, 5*time.Second)
	if w.leg.judge(later) {
		t.Error("down, though it was we who slept")
	}
	if w.leg.last.After(later) {
		t.Error("a reply from the future")
	}
	if !w.leg.judge(later.Add(time.Second)) {
		t.Error("not down a second after waking up without a reply")
	}
}

func TestChoose(t *testing.T) {
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	up, down := Stand{State: Up, Echoed: at(1000), Last: at(1001)}, Stand{State: Down, Echoed: at(850), Last: at(851)}
	for name, test := range map[string]struct {
		present int
		lanes   []int
		stands  map[int]Stand
		want    int
		unclear bool
	}{
		"sticky, though a lower one is up":   {present: 1, lanes: []int{0, 1}, stands: map[int]Stand{0: up, 1: up}, want: 1},
		"leaves what is down":                {present: 0, lanes: []int{0, 1}, stands: map[int]Stand{0: down, 1: up}, want: 1},
		"leaves what never answered":         {present: 0, lanes: []int{0, 1}, stands: map[int]Stand{0: {State: Down}, 1: up}, want: 1},
		"stays if nothing is better":         {present: 0, lanes: []int{0, 1}, stands: map[int]Stand{0: down, 1: down}},
		"both were silent":                   {present: 0, lanes: []int{0, 1}, stands: map[int]Stand{0: down, 1: {State: Up, Echoed: at(900), Last: at(901)}}, unclear: true},
		"its pause is over just now":         {present: 0, lanes: []int{0, 1}, stands: map[int]Stand{0: down, 1: {State: Up, Echoed: at(1000), Last: at(1001), Steady: at(990)}}, unclear: true},
		"one of the others is surely better": {present: 0, lanes: []int{0, 1, 2}, stands: map[int]Stand{0: down, 1: {State: Up, Echoed: at(900), Last: at(901)}, 2: up}, want: 2},
		"not to an unknown one":              {present: 0, lanes: []int{0, 1}, stands: map[int]Stand{0: down}},
		"unknown is not down":                {present: 0, lanes: []int{0, 1}, stands: map[int]Stand{1: up}},
		"no fail-back":                       {present: 2, lanes: []int{0, 1, 2}, stands: map[int]Stand{0: up, 1: up, 2: {}}, want: 2},
		"present one is gone":                {present: 1, lanes: []int{0, 2}, stands: map[int]Stand{1: up, 2: up}, want: 2},
		"present one is gone, none is up":    {present: 1, lanes: []int{0, 2}, want: 0},
		"no lanes":                           {present: 1, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, clear := Choose(test.present, test.lanes, func(lane int) Stand { return test.stands[lane] })
			if got != test.want || clear == test.unclear {
				t.Errorf("lane %d, clear %v, want %d, %v", got, clear, test.want, !test.unclear)
			}
		})
	}
}

// Two lanes end on a machine that has no time for them now and then: both answer late, and neither is better. What really fails is left soon.
func TestChooseOnBusyMachine(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		pause, every time.Duration // how long nobody is answered, and how often that happens
		apart        bool          // each lane has pauses of its own
		most         int           // moves in a minute
	}{
		"short pauses":            {250 * ms, 2 * time.Second, false, 0},
		"long pauses":             {900 * ms, 3 * time.Second, false, 0},
		"pauses of each gateway":  {250 * ms, time.Second, true, 3},
		"longer ones of each":     {400 * ms, 2 * time.Second, true, 10},
		"nothing but what is due": {0, time.Hour, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewSource(1))
			pauses := func() func(at time.Duration) time.Duration {
				var begin, end time.Duration
				return func(at time.Duration) time.Duration { // until when nobody answers
					if at >= end {
						begin = at + time.Duration(random.Int63n(int64(test.every)))
						end = begin + time.Duration(float64(test.pause)*(0.5+random.Float64()))
					}
					if at >= begin {
						return end - at
					}
					return 0
				}
			}
			common := pauses()
			var ways [2]*way
			for i := range ways {
				own := common
				if test.apart {
					own = pauses()
				}
				ways[i] = &way{leg: newLeg(start, Pace{Up: 50 * ms, Other: 50 * ms}), now: start}
				ways[i].answers = func(time.Duration) bool { return true }
				ways[i].late = func(at time.Duration) time.Duration { return own(at) + time.Duration(1+random.Intn(8))*ms }
			}
			lane, moves := 0, 0
			step := func(at time.Duration) {
				for _, w := range ways {
					w.run(at)
				}
				next, _ := Choose(lane, []int{0, 1}, func(lane int) Stand { return ways[lane].leg.stand(ways[lane].now) })
				if next != lane {
					lane, moves = next, moves+1
				}
			}
			at := time.Second
			for ; at < time.Minute; at += 5 * ms {
				step(at)
			}
			if moves > test.most {
				t.Errorf("%d moves, want at most %d", moves, test.most)
			}
			dead, before := at, lane
			ways[lane].answers = func(time.Duration) bool { return false }
			for lane == before && at < dead+5*time.Second {
				at += 5 * ms
				step(at)
			}
			t.Logf("%d moves; a lane that fails is left after %v", moves, at-dead)
			if worst := 250*ms + mostLate + test.pause*3/2; at-dead > worst {
				t.Errorf("a lane that fails is left after %v, want at most %v", at-dead, worst)
			}
		})
	}
}
