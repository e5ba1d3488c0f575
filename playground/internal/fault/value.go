// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of what the emulator can hold or what makes sense to ask for.
const (
	MaxDelay = 10 * time.Second
	MinRate  = 8 * Kilobit
	MaxRate  = 100 * Gigabit
)

// Delay is a one-way delay. Its text form is `50ms` or `50ms±5ms`.
type Delay struct {
	Mean   time.Duration
	Jitter time.Duration // evenly spread between Mean-Jitter and Mean+Jitter
}

// Loss is a probability in hundredths of a percent, 0 to FullLoss. Its text form is `5%`.
type Loss uint16

// FullLoss is 100 %.
const FullLoss Loss = 10000

// Rate is a number of bits per second; 0 means unlimited. Its text form is `100mbit` (decimal units, as tc).
type Rate uint64

// The units of a Rate.
const (
	Bit     Rate = 1
	Kilobit      = 1000 * Bit
	Megabit      = 1000 * Kilobit
	Gigabit      = 1000 * Megabit
)

type rateUnit struct {
	name string
	rate Rate
}

// rateUnits has the greatest unit first, and as the last one that every Rate is a multiple of.
var rateUnits = []rateUnit{{"gbit", Gigabit}, {"mbit", Megabit}, {"kbit", Kilobit}, {"bit", Bit}}

// ParseDelay reads `50ms`, `50ms±5ms` or, for keyboards, `50ms+-5ms`.
func ParseDelay(text string) (Delay, error) {
	mean, jitter, varies := strings.Cut(strings.ReplaceAll(text, "+-", "±"), "±")
	var d Delay
	var err error
	if d.Mean, err = parseDuration(mean); err != nil {
		return Delay{}, fmt.Errorf("delay %q: %w", text, err)
	}
	if varies {
		if d.Jitter, err = parseDuration(jitter); err != nil {
			return Delay{}, fmt.Errorf("jitter of delay %q: %w", text, err)
		}
	}
	return d, d.validate()
}

func parseDuration(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if _, err := strconv.ParseFloat(text, 64); err == nil && text != "0" {
		return 0, fmt.Errorf("%q has no unit; write for example %sms", text, text)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration; write for example 50ms, 1.5s or 50ms±5ms", text)
	}
	return d, nil
}

func (d Delay) validate() error {
	switch {
	case d.Mean < 0 || d.Jitter < 0:
		return fmt.Errorf("delay %s: negative", d)
	case d.Jitter > d.Mean:
		return fmt.Errorf("delay %s: the jitter is greater than the delay", d)
	case d.Mean > MaxDelay:
		return fmt.Errorf("delay %s: more than %s; to cut the link use a partition", d, MaxDelay)
	}
	return nil
}

// String gives the form that ParseDelay reads.
func (d Delay) String() string {
	if d.Jitter == 0 {
		return d.Mean.String()
	}
	return d.Mean.String() + "±" + d.Jitter.String()
}

// MarshalText makes the text form the JSON and YAML form.
func (d Delay) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is ParseDelay.
func (d *Delay) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDelay(string(text))
	return err
}

// ParseLoss reads a percentage, `5%` or `5`. The smallest is 0.01 %; finer parts are rounded.
func ParseLoss(text string) (Loss, error) {
	number := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%"))
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(percent) {
		return 0, fmt.Errorf("loss %q: no percentage; write for example 5%% or 0.1%%", text)
	}
	if percent < 0 || percent > 100 {
		return 0, fmt.Errorf("loss %q: not between 0%% and 100%%", text)
	}
	loss := Loss(math.Round(percent * 100))
	if loss == 0 && percent > 0 {
		return 0, fmt.Errorf("loss %q: the smallest loss is 0.01%%", text)
	}
	return loss, nil
}

func (l Loss) validate() error {
	if l > FullLoss {
		return fmt.Errorf("loss %s: more than 100%%", l)
	}
	return nil
}

// String gives the form that ParseLoss reads.
func (l Loss) String() string {
	return strconv.FormatFloat(float64(l)/100, 'f', -1, 64) + "%"
}

// MarshalText makes the text form the JSON and YAML form.
func (l Loss) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText is ParseLoss.
func (l *Loss) UnmarshalText(text []byte) (err error) {
	*l, err = ParseLoss(string(text))
	return err
}

// ParseRate reads a bandwidth, `100mbit`, `1gbit`, `500kbit`, `1.5mbit`, or `0` and `unlimited`.
// Bytes per second (mbps in the language of tc) are refused, because most people mean bits when they write that.
func ParseRate(text string) (Rate, error) {
	lower := strings.ToLower(strings.TrimSpace(text))
	if lower == "unlimited" || lower == "0" {
		return 0, nil
	}
	for _, unit := range rateUnits {
		number, found := strings.CutSuffix(lower, unit.name)
		if !found {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(value) || value < 0 {
			return 0, fmt.Errorf("bandwidth %q: %q is no number", text, number)
		}
		value = math.Round(value * float64(unit.rate))
		if value > float64(MaxRate) {
			return 0, fmt.Errorf("bandwidth %q: more than %s; for no limit write unlimited", text, MaxRate)
		}
		rate := Rate(value)
		if rate == 0 {
			return 0, fmt.Errorf("bandwidth %q: less than %s; for no limit write unlimited, to cut the link use a partition", text, MinRate)
		}
		return rate, rate.validate()
	}
	return 0, fmt.Errorf("bandwidth %q: no unit of bits per second; write for example 500kbit, 100mbit or 1gbit", text)
}

func (r Rate) validate() error {
	if r != 0 && (r < MinRate || r > MaxRate) {
		return fmt.Errorf("bandwidth %s: not between %s and %s; to cut the link use a partition", r, MinRate, MaxRate)
	}
	return nil
}

// String gives the form that ParseRate reads, exactly.
func (r Rate) String() string {
	if r == 0 {
		return "unlimited"
	}
	unit := rateUnits[slices.IndexFunc(rateUnits, func(u rateUnit) bool { return r%u.rate == 0 })]
	return strconv.FormatUint(uint64(r/unit.rate), 10) + unit.name
}

// MarshalText makes the text form the JSON and YAML form.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRate.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}
