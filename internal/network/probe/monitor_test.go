// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"math/rand"
	"testing"
	"time"

	"liqo.io/liqo/internal/kube/kubetest/single"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simulation drives a monitor on a simulated clock: answers decides which probes are answered, takes how long a reply takes.
type simulation struct {
	monitor *monitor
	now     time.Time
	answers func(at time.Duration) bool
	takes   time.Duration
	late    func(at time.Duration) time.Duration // used instead of takes, if replies take different times
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

func (sim *simulation) run(until time.Duration) {
	for ; sim.now.Sub(start) < until; sim.now = sim.now.Add(time.Millisecond) {
		before := sim.monitor.state
		for len(sim.flying) > 0 && !sim.flying[0].arrives.After(sim.now) {
			sim.monitor.receive(sim.now, sim.flying[0].sequence)
			sim.flying = sim.flying[1:]
		}
		sim.monitor.judge(sim.now)
		if !sim.monitor.due(sim.now).After(sim.now) {
			sequence := sim.monitor.send(sim.now)
			if sim.answers(sim.now.Sub(start)) {
				takes := sim.takes
				if sim.late != nil {
					takes = sim.late(sim.now.Sub(start))
				}
				sim.flying = append(sim.flying, flying{sequence, sim.now.Add(takes)})
			}
		}
		if sim.monitor.state != before {
			sim.changes = append(sim.changes, change{sim.now.Sub(start), sim.monitor.state})
		}
	}
}

func TestMonitor(t *testing.T) {
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
		"up after two replies":        {fast, 1 * ms, always, 2 * time.Second, []State{Up}, []span{{10 * ms, 15 * ms}}},
		"slow pace":                   {slow, 1 * ms, always, 5 * time.Second, []State{Up}, []span{{10 * ms, 15 * ms}}},
		"long round trip is not loss": {fast, 400 * ms, always, 5 * time.Second, []State{Up}, []span{{425 * ms, 430 * ms}}},
		"no gateway there":            {fast, 1 * ms, func(time.Duration) bool { return false }, 5 * time.Second, []State{Down}, []span{{time.Second, 1010 * ms}}},
		"three lost": {
			fast, 1 * ms, not(time.Second, time.Hour), 5 * time.Second, []State{Up, Down}, []span{{0, 100 * ms}, {1100 * ms, 1180 * ms}},
		},
		"two lost are forgiven": {fast, 1 * ms, not(time.Second, 1100*ms), 5 * time.Second, []State{Up}, nil},
		"comes back": {
			fast, 1 * ms, not(time.Second, 2*time.Second), 5 * time.Second,
			[]State{Up, Down, Up},
			[]span{{0, 100 * ms}, {1100 * ms, 1180 * ms}, {2050 * ms, 2110 * ms}},
		},
		"slow pace, faster when late": {slow, 1 * ms, not(time.Second, 1800*ms), 9 * time.Second, []State{Up}, nil},
		"slow pace, down after three": {
			slow, 1 * ms, not(time.Second, time.Hour), 9 * time.Second, []State{Up, Down}, []span{{0, 300 * ms}, {2 * time.Second, 2530 * ms}},
		},
		"new, until it answers": {
			slow, 1 * ms, not(0, 2*time.Second), 5 * time.Second, []State{Down, Up}, []span{{1520 * ms, 1530 * ms}, {2010 * ms, 2110 * ms}},
		},
		"not for ever": {
			slow, 1 * ms, not(0, 10*time.Second), 15 * time.Second, []State{Down, Up}, []span{{1520 * ms, 1530 * ms}, {10010 * ms, 10215 * ms}},
		},
		"a reply now and then is none": {fast, 1 * ms, func(at time.Duration) bool { return at%time.Second < 10*ms }, 9 * time.Second, []State{Down}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			sim := &simulation{monitor: newMonitor(start, test.pace), now: start, answers: test.answers, takes: test.takes}
			sim.run(test.until)
			if len(sim.changes) != len(test.want) {
				t.Fatalf("changes %v, want states %v", sim.changes, test.want)
			}
			for i, change := range sim.changes {
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

func TestMonitorStatistics(t *testing.T) {
	sim := &simulation{monitor: newMonitor(start, Pace{Up: 100 * time.Millisecond, Other: 100 * time.Millisecond}), now: start, takes: 30 * time.Millisecond}
	count := 0
	sim.answers = func(time.Duration) bool { count++; return count%4 != 0 }
	sim.run(20 * time.Second)
	status := sim.monitor.status(sim.now)
	if status.Lost < 0.2 || status.Lost > 0.3 {
		t.Errorf("lost %v of every fourth", status.Lost)
	}
	if status.RoundTrip != 30*time.Millisecond {
		t.Errorf("round trip %v", status.RoundTrip)
	}
	if status.State != Up {
		t.Errorf("state %v: a quarter of loss is not down", status.State)
	}
}

// Losses by chance alone do not reach the timeout, and the timeout stays short.
func TestMonitorTimeout(t *testing.T) {
	single.Goroutine(t)
	ms := time.Millisecond
	for name, test := range map[string]struct {
		takes time.Duration
		lost  float64
		most  time.Duration
	}{
		"next door":                              {1 * ms, 0, 1600 * ms},
		"far":                                    {300 * ms, 0, 2200 * ms},
		"a little loss":                          {20 * ms, 0.02, 2 * time.Second},
		"far, and a tenth lost each way":         {150 * ms, 0.19, 3 * time.Second},
		"farther, and a tenth lost":              {600 * ms, 0.1, 4500 * ms}, // the loss that 64 probes show varies
		"a quarter lost, the timeout is bounded": {50 * ms, 0.25, 3500 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			random, longest, impatient := rand.New(rand.NewSource(1)), time.Duration(0), 0
			sim := &simulation{monitor: newMonitor(start, Pace{Up: 500 * ms, Other: 200 * ms}), now: start, takes: test.takes}
			sim.answers = func(time.Duration) bool { return random.Float64() >= test.lost }
			for at := 10 * time.Second; at < time.Hour; at += 20 * ms {
				sim.run(at)
				if silent := sim.now.Sub(sim.monitor.last); silent > time.Second {
					impatient++
					if timeout := sim.monitor.status(sim.now).Timeout; silent > timeout {
						t.Errorf("at %v: silent for %v, timeout %v", at, silent, timeout)
					}
				}
			}
			t.Logf("more than a second without a reply: %v in all", time.Duration(impatient)*20*ms)
			sim.answers = func(time.Duration) bool { return false }
			for end := sim.now.Add(30 * time.Second); sim.now.Before(end); {
				sim.run(sim.now.Sub(start) + 20*ms)
				longest = max(longest, sim.monitor.status(sim.now).Timeout)
			}
			if longest > test.most {
				t.Errorf("timeout up to %v", longest)
			}
		})
	}
}

// After an outage the timeout is as before, because probes lost in the outage do not count as loss of the path.
func TestMonitorTimeoutAfterOutage(t *testing.T) {
	sim := &simulation{monitor: newMonitor(start, Pace{Up: 500 * time.Millisecond, Other: 200 * time.Millisecond}), now: start, takes: time.Millisecond}
	sim.answers = func(at time.Duration) bool { return at < time.Second || at > 20*time.Second }
	sim.run(30 * time.Second)
	if status := sim.monitor.status(sim.now); status.State != Up || status.Lost < 0.3 || status.Timeout > 1600*time.Millisecond {
		t.Errorf("%+v", status)
	}
}

func TestMonitorIgnoresUnsolicitedReplies(t *testing.T) {
	l := newMonitor(start, Pace{Up: time.Second, Other: time.Second})
	sequence := l.send(start)
	for range 5 {
		l.receive(start.Add(time.Millisecond), sequence)
	}
	l.receive(start.Add(time.Millisecond), 0)
	l.receive(start.Add(time.Millisecond), sequence+remembered)
	l.receive(start.Add(time.Millisecond), 12345)
	if l.state == Up || l.consecutive != 1 {
		t.Errorf("state %v after one reply, repeated, and made-up ones (row %d)", l.state, l.consecutive)
	}
}

func TestMonitorForgivesOwnStall(t *testing.T) {
	sim := &simulation{
		monitor: newMonitor(start, Pace{Up: 50 * time.Millisecond, Other: 50 * time.Millisecond}), now: start, takes: time.Millisecond,
		answers: func(time.Duration) bool { return true },
	}
	sim.run(time.Second)
	later := sim.now.Add(5 * time.Second)
	sim.monitor.forgive(later, 5*time.Second)
	if sim.monitor.judge(later) {
		t.Error("down, although it was this process that stood still")
	}
	if sim.monitor.last.After(later) {
		t.Error("a reply from the future")
	}
	if !sim.monitor.judge(later.Add(time.Second)) {
		t.Error("not down a second after waking up without a reply")
	}
}

func TestChoose(t *testing.T) {
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	up, down := Status{State: Up, Echoed: at(1000), Last: at(1001)}, Status{State: Down, Echoed: at(850), Last: at(851)}
	for name, test := range map[string]struct {
		present int
		lanes   []int
		stands  map[int]Status
		want    int
		unclear bool
	}{
		"sticky, though a lower one is up": {present: 1, lanes: []int{0, 1}, stands: map[int]Status{0: up, 1: up}, want: 1},
		"leaves what is down":              {present: 0, lanes: []int{0, 1}, stands: map[int]Status{0: down, 1: up}, want: 1},
		"leaves what never answered":       {present: 0, lanes: []int{0, 1}, stands: map[int]Status{0: {State: Down}, 1: up}, want: 1},
		"stays if nothing is better":       {present: 0, lanes: []int{0, 1}, stands: map[int]Status{0: down, 1: down}},
		"both were silent": {
			present: 0, lanes: []int{0, 1}, stands: map[int]Status{0: down, 1: {State: Up, Echoed: at(900), Last: at(901)}}, unclear: true,
		},
		"its pause is over just now": {
			present: 0, lanes: []int{0, 1}, stands: map[int]Status{0: down, 1: {State: Up, Echoed: at(1000), Last: at(1001), Steady: at(990)}},
			unclear: true,
		},
		"one of the others is surely better": {
			present: 0, lanes: []int{0, 1, 2}, stands: map[int]Status{0: down, 1: {State: Up, Echoed: at(900), Last: at(901)}, 2: up}, want: 2,
		},
		"not to an unknown one":           {present: 0, lanes: []int{0, 1}, stands: map[int]Status{0: down}},
		"unknown is not down":             {present: 0, lanes: []int{0, 1}, stands: map[int]Status{1: up}},
		"no fail-back":                    {present: 2, lanes: []int{0, 1, 2}, stands: map[int]Status{0: up, 1: up, 2: {}}, want: 2},
		"present one is gone":             {present: 1, lanes: []int{0, 2}, stands: map[int]Status{1: up, 2: up}, want: 2},
		"present one is gone, none is up": {present: 1, lanes: []int{0, 2}, want: 0},
		"no lanes":                        {present: 1, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, clear := Choose(test.present, test.lanes, func(lane int) Status { return test.stands[lane] })
			if got != test.want || clear == test.unclear {
				t.Errorf("lane %d, clear %v, want %d, %v", got, clear, test.want, !test.unclear)
			}
		})
	}
}

// Two lanes end on a machine that stalls now and then: both answer late, and neither is better. A lane that fails is still left soon.
func TestChooseOnBusyMachine(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		pause, every time.Duration // the length of a stall, and how often one happens
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
				var from, end time.Duration
				return func(at time.Duration) time.Duration { // the rest of the stall
					if at >= end {
						from = at + time.Duration(random.Int63n(int64(test.every)))
						end = from + time.Duration(float64(test.pause)*(0.5+random.Float64()))
					}
					if at >= from {
						return end - at
					}
					return 0
				}
			}
			common := pauses()
			var sims [2]*simulation
			for i := range sims {
				own := common
				if test.apart {
					own = pauses()
				}
				sims[i] = &simulation{monitor: newMonitor(start, Pace{Up: 50 * ms, Other: 50 * ms}), now: start}
				sims[i].answers = func(time.Duration) bool { return true }
				sims[i].late = func(at time.Duration) time.Duration { return own(at) + time.Duration(1+random.Intn(8))*ms }
			}
			lane, moves := 0, 0
			step := func(at time.Duration) {
				for _, sim := range sims {
					sim.run(at)
				}
				next, _ := Choose(lane, []int{0, 1}, func(lane int) Status { return sims[lane].monitor.status(sims[lane].now) })
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
			sims[lane].answers = func(time.Duration) bool { return false }
			for lane == before && at < dead+5*time.Second {
				at += 5 * ms
				step(at)
			}
			t.Logf("%d moves; a failed lane is left after %v", moves, at-dead)
			if worst := 250*ms + maxLate + test.pause*3/2; at-dead > worst {
				t.Errorf("a failed lane is left after %v, want at most %v", at-dead, worst)
			}
		})
	}
}
