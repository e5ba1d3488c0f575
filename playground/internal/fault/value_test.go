// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// row is a text, the value it stands for in its canonical text form, or a part of the error.
type row struct{ text, want, refused string }

func check[V fmt.Stringer](t *testing.T, parse func(string) (V, error), rows []row) {
	t.Helper()
	for _, r := range rows {
		got, err := parse(r.text)
		switch {
		case r.refused != "" && (err == nil || !strings.Contains(err.Error(), r.refused)):
			t.Errorf("%q: got %v and error %v, want an error with %q", r.text, got, err, r.refused)
		case r.refused == "" && err != nil:
			t.Errorf("%q: %v", r.text, err)
		case r.refused == "" && got.String() != r.want:
			t.Errorf("%q: got %s, want %s", r.text, got, r.want)
		case r.refused == "":
			if again, err := parse(got.String()); err != nil || again.String() != r.want {
				t.Errorf("%q: its text form %s reads as %v, %v", r.text, got, again, err)
			}
		}
	}
}

func TestParseDelay(t *testing.T) {
	check(t, ParseDelay, []row{
		{text: "50ms", want: "50ms"},
		{text: " 1.5s ", want: "1.5s"},
		{text: "0", want: "0s"},
		{text: "50ms±5ms", want: "50ms±5ms"},
		{text: "50ms ± 5ms", want: "50ms±5ms"},
		{text: "50ms+-500us", want: "50ms±500µs"},
		{text: "50ms±0", want: "50ms"},
		{text: "50", refused: "has no unit; write for example 50ms"},
		{text: "50ms±5", refused: "has no unit; write for example 5ms"},
		{text: "", refused: "no duration"},
		{text: "fast", refused: "no duration"},
		{text: "50ms±", refused: "no duration"},
		{text: "-1ms", refused: "negative"},
		{text: "5ms±6ms", refused: "jitter is greater"},
		{text: "11s", refused: "more than 10s"},
	})
	if d, err := ParseDelay("50ms±5ms"); err != nil || d != (Delay{Mean: 50 * time.Millisecond, Jitter: 5 * time.Millisecond}) {
		t.Errorf("got %#v, %v", d, err)
	}
}

func TestParseLoss(t *testing.T) {
	check(t, ParseLoss, []row{
		{text: "5%", want: "5%"},
		{text: "5", want: "5%"},
		{text: " 2.5 % ", want: "2.5%"},
		{text: "0.29%", want: "0.29%"},
		{text: "0.01", want: "0.01%"},
		{text: "0", want: "0%"},
		{text: "100%", want: "100%"},
		{text: "0.001%", refused: "smallest loss"},
		{text: "101%", refused: "not between"},
		{text: "-1", refused: "not between"},
		{text: "NaN", refused: "no percentage"},
		{text: "", refused: "no percentage"},
		{text: "some", refused: "no percentage"},
	})
	if l, err := ParseLoss("5%"); err != nil || l != 500 {
		t.Errorf("got %d, %v", l, err)
	}
}

func TestParseRate(t *testing.T) {
	check(t, ParseRate, []row{
		{text: "100mbit", want: "100mbit"},
		{text: "1Gbit", want: "1gbit"},
		{text: "500 kbit", want: "500kbit"},
		{text: "1.5mbit", want: "1500kbit"},
		{text: "12345bit", want: "12345bit"},
		{text: "0", want: "unlimited"},
		{text: "unlimited", want: "unlimited"},
		{text: "100", refused: "no unit"},
		{text: "100mbps", refused: "no unit"},
		{text: "100MB", refused: "no unit"},
		{text: "mbit", refused: "no number"},
		{text: "-5mbit", refused: "no number"},
		{text: "0.1bit", refused: "less than"},
		{text: "1kbit", refused: "not between"},
		{text: "1000gbit", refused: "more than"},
	})
	if r, err := ParseRate("100mbit"); err != nil || r != 100_000_000 {
		t.Errorf("got %d, %v", r, err)
	}
}
