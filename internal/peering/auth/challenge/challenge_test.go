// SPDX-License-Identifier: Apache-2.0

package challenge

import (
	"encoding/base64"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func TestChallenge(t *testing.T) {
	maker := New(start)
	made := start.Add(time.Hour)
	text := maker.Issue("a", made)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	raw[nonceBytes]++
	for _, c := range []struct {
		name    string
		maker   *Maker
		text    string
		cluster string
		at      time.Duration
		want    bool
	}{
		{"at once", maker, text, "a", 0, true},
		{"just in time", maker, text, "a", Lifetime - 1, true},
		{"expired", maker, text, "a", Lifetime, false},
		{"much later", maker, text, "a", 200 * 365 * 24 * time.Hour, false},
		{"before it was made", maker, text, "a", -1, false},
		{"another cluster", maker, text, "b", 0, false},
		{"another process", New(start), text, "a", 0, false},
		{"changed", maker, base64.RawURLEncoding.EncodeToString(raw), "a", 0, false},
		{"cut", maker, text[:len(text)-1], "a", 0, false},
		{"longer", maker, text + "A", "a", 0, false},
		{"padded", maker, text + "=", "a", 0, false},
		{"newline", maker, text[:10] + "\n" + text[11:], "a", 0, false},
		{"empty", maker, "", "a", 0, false},
	} {
		if _, got := c.maker.Check(c.text, c.cluster, made.Add(c.at)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if other := maker.Issue("a", made); other == text {
		t.Error("the same challenge twice")
	}
}

func TestSpentOnce(t *testing.T) {
	maker := New(start)
	text := maker.Issue("a", start)
	which, ok := maker.Check(text, "a", start)
	var won atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if maker.Spend(which, "a", start) {
				won.Add(1)
			}
		})
	}
	all.Wait()
	if !ok || won.Load() != 1 {
		t.Errorf("%v, spent %d times", ok, won.Load())
	}
	if _, again := maker.Check(text, "a", start.Add(Lifetime-1)); again {
		t.Error("good again")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	maker := New(start)
	for i := range maxSpent + 10 {
		which, _ := maker.Check(maker.Issue("a", start), "a", start)
		if spent := maker.Spend(which, "a", start); spent != (i < maxSpent) {
			t.Fatalf("%d: %v", i, spent)
		}
	}
	if which, _ := maker.Check(maker.Issue("b", start), "b", start); !maker.Spend(which, "b", start) {
		t.Error("what one owner has used keeps another from using one")
	}
	later := start.Add(Lifetime)
	which, _ := maker.Check(maker.Issue("a", later), "a", later)
	if !maker.Spend(which, "a", later) || len(maker.spent) != 1 {
		t.Errorf("%d are remembered after all have expired", len(maker.spent))
	}
}

// Nothing that was not issued passes, and what was issued has one spelling only.
func FuzzCheck(f *testing.F) {
	maker := New(start)
	good := maker.Issue("a", start)
	for _, seed := range []string{good, "", good[1:], strings.ToLower(good), good + good, strings.Repeat("A", len(good)), strings.Repeat("=", len(good))} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, ok := maker.Check(text, "a", start); ok != (text == good) {
			t.Errorf("%q: %v", text, ok)
		}
	})
}
