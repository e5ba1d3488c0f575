// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestSettle: what a peer states, second by second, and what is used then.
func TestSettle(t *testing.T) {
	type step struct {
		at     int // seconds
		stated string
		want   string
		again  int // seconds
	}
	for name, steps := range map[string][]step{
		"the first counts at once":            {{0, "a", "a", 0}},
		"so does the first change":            {{0, "a", "a", 0}, {1, "b", "b", 0}},
		"the second one has to stand":         {{0, "a", "a", 0}, {1, "b", "b", 0}, {2, "c", "b", 60}, {61, "c", "b", 1}, {62, "c", "c", 0}},
		"a change is not asked for too early": {{0, "a", "a", 0}, {1, "b", "b", 0}, {2, "c", "b", 60}, {30, "c", "b", 32}, {62, "c", "c", 0}, {63, "c", "c", 0}},
		"a change during the wait restarts":   {{0, "a", "a", 0}, {1, "b", "b", 0}, {2, "c", "b", 60}, {50, "d", "b", 60}, {62, "d", "b", 48}, {110, "d", "d", 0}},
		"back to what is used":                {{0, "a", "a", 0}, {1, "b", "b", 0}, {2, "a", "b", 60}, {3, "b", "b", 60}, {63, "b", "b", 0}, {64, "a", "a", 0}},
		"after one that had to stand":         {{0, "a", "a", 0}, {1, "b", "b", 0}, {2, "c", "b", 60}, {62, "c", "c", 0}, {63, "d", "c", 60}, {123, "d", "d", 0}},
		"each after a minute":                 {{0, "a", "a", 0}, {70, "b", "b", 0}, {140, "a", "a", 0}, {210, "b", "b", 0}},
	} {
		var memory Memory[string]
		used := ""
		for i, s := range steps {
			var again time.Duration
			used, memory, again = Settle(memory, used, s.stated, noon.Add(time.Duration(s.at)*time.Second))
			if used != s.want || again != time.Duration(s.again)*time.Second {
				t.Errorf("%s, step %d: %s is used, again after %s; want %s, %ds", name, i, used, again, s.want, s.again)
			}
		}
	}
}

// TestRestart: a process that remembers nothing changes nothing before what is stated has stood, and the write of a change may take its time.
func TestRestart(t *testing.T) {
	used, memory, again := Settle(Memory[string]{}, "a", "b", noon)
	if used != "a" || again != Stand || !memory.Unsteady {
		t.Errorf("after a restart %s is used, again after %s, %+v", used, again, memory)
	}
	if used, memory, _ = Settle(memory, "a", "b", noon.Add(Stand)); used != "b" || memory.Unsteady {
		t.Errorf("a minute after a restart %s is used, %+v", used, memory)
	}
	if used, _, _ = Settle(memory, "a", "b", noon.Add(Stand+time.Second)); used != "b" {
		t.Errorf("before the cache has our write, %s is used", used)
	}
	used, memory, again = Settle(Memory[string]{}, "a", "a", noon)
	if used != "a" || again != 0 || memory.Unsteady {
		t.Errorf("a restart without a change: %s is used, again after %s, %+v", used, again, memory)
	}
	if used, _, again = Settle(memory, "a", "b", noon.Add(time.Second)); used != "a" || again != Stand {
		t.Errorf("a change just after a restart: %s is used, again after %s", used, again)
	}
	// A clock that is set back delays by Stand only.
	if used, memory, again = Settle(memory, "a", "b", noon.Add(-time.Hour)); used != "a" || again != Stand {
		t.Errorf("with the clock set back: %s is used, again after %s", used, again)
	}
	if used, _, _ = Settle(memory, "a", "b", noon.Add(-time.Hour+Stand)); used != "b" {
		t.Errorf("with the clock set back, %s is used after a minute", used)
	}
}

// TestHostile counts how often a peer that wants to changes what is used: in each minute of an hour at most once, and not at all if it never stands still.
func TestHostile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, row := range map[string]struct {
		pause func() time.Duration
		most  int // in an hour
	}{
		"twice a second": {func() time.Duration { return time.Second / 2 }, 1},
		"every 59 s":     {func() time.Duration { return 59 * time.Second }, 1},
		"every 61 s":     {func() time.Duration { return 61 * time.Second }, 59},
		"bursts, then a minute": {func() time.Duration {
			return []time.Duration{time.Second, time.Second, 61 * time.Second}[random.IntN(3)]
		}, 60},
		"at random": {func() time.Duration { return time.Duration(random.IntN(150)) * time.Second }, 60},
	} {
		var memory Memory[string]
		used, stated := "", ""
		var changes []time.Time
		change, round := noon, 0
		for now := noon; now.Before(noon.Add(time.Hour)); now = now.Add(100 * time.Millisecond) {
			if !now.Before(change) {
				stated, change, round = fmt.Sprint("network ", round%2), now.Add(row.pause()), round+1
			}
			before := used
			if used, memory, _ = Settle(memory, used, stated, now); used != before {
				changes = append(changes, now)
			}
		}
		t.Logf("%s: %d changes count in an hour", name, len(changes)-1)
		if len(changes)-1 > row.most { // without the first statement
			t.Errorf("%s: %d changes count in an hour, want at most %d", name, len(changes)-1, row.most)
		}
		for i := 2; i < len(changes); i++ {
			if apart := changes[i].Sub(changes[i-1]); apart < Stand {
				t.Errorf("%s: two changes count within %s", name, apart)
			}
		}
	}
}
