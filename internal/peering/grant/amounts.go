// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxPercentage shares everything that is free.
const MaxPercentage = 100

// mega is the documented granularity of memory, in bytes.
const mega = 1_000_000

// Amounts counts resources in integers: cpu in thousandths, all others in their own unit (bytes, devices, pods). Sums
// saturate at the largest integer.
type Amounts map[corev1.ResourceName]int64

// Count converts quantities to amounts. Negative quantities become zero, fractions are rounded up.
func Count(list corev1.ResourceList) Amounts {
	amounts := make(Amounts, len(list))
	for name, quantity := range list {
		amounts[name] = amount(name, quantity)
	}
	return amounts
}

func amount(name corev1.ResourceName, quantity resource.Quantity) int64 {
	limit, value := resource.NewQuantity(math.MaxInt64, resource.DecimalSI), quantity.Value
	if name == corev1.ResourceCPU {
		limit, value = resource.NewMilliQuantity(math.MaxInt64, resource.DecimalSI), quantity.MilliValue
	}
	switch {
	case quantity.Sign() <= 0:
		return 0
	case quantity.Cmp(*limit) >= 0:
		// Quantity.Value would overflow silently.
		return math.MaxInt64
	default:
		return value()
	}
}

// add adds b to a.
func (a Amounts) add(b Amounts) {
	for name, value := range b {
		a[name] = plus(a[name], value)
	}
}

func plus(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

// Shared reports whether a resource is granted at all. The number of attachable volumes is not: it is a limit of each node
// and driver, so its sum means nothing on a virtual node, to which no volume is attached.
func Shared(name corev1.ResourceName) bool {
	return !strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix)
}

// Share returns the given percentage of what is free, for each resource that the nodes have:
//   - cpu in thousandths, memory in megabytes, local storage in bytes, all rounded down;
//   - devices, pods and huge pages rounded to the nearest integer, and at least one if one is free and the percentage is
//     not zero: one GPU at 90 % is one GPU.
func Share(free Amounts, percentage int) corev1.ResourceList {
	percentage = min(max(percentage, 0), MaxPercentage)
	list := make(corev1.ResourceList, len(free))
	for name, value := range free {
		if Shared(name) {
			list[name] = quantity(name, part(max(value, 0), int64(percentage), name))
		}
	}
	return list
}

func part(value, percentage int64, name corev1.ResourceName) int64 {
	step, pieces := granularity(name)
	if !pieces {
		whole, _ := percent(value, percentage)
		return whole - whole%step
	}
	whole, rest := percent(value/step, percentage)
	if rest >= 50 || whole == 0 && rest > 0 {
		whole++
	}
	return whole * step
}

// percent returns value*percentage/100 and the remaining hundredths, without an intermediate overflow.
func percent(value, percentage int64) (whole, rest int64) {
	rest = value % 100 * percentage
	return value/100*percentage + rest/100, rest % 100
}

// granularity returns the granularity of a resource, and whether it is indivisible.
func granularity(name corev1.ResourceName) (size int64, pieces bool) {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceEphemeralStorage, corev1.ResourceStorage:
		return 1, false
	case corev1.ResourceMemory:
		return mega, false
	}
	if page, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
		if size, err := resource.ParseQuantity(page); err == nil {
			return max(amount(name, size), 1), true
		}
	}
	return 1, true
}

func quantity(name corev1.ResourceName, value int64) resource.Quantity {
	switch {
	case name == corev1.ResourceCPU:
		return *resource.NewMilliQuantity(value, resource.DecimalSI)
	case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return *resource.NewQuantity(value, resource.BinarySI)
	default:
		return *resource.NewQuantity(value, resource.DecimalSI)
	}
}

// Divide divides a grant among several requests of the same peer, in order, so that two requests do not get twice as much.
// A request bounds the resources that it names. It gets all of those that it does not name.
func Divide(total corev1.ResourceList, requests []corev1.ResourceList) []corev1.ResourceList {
	left := Count(total)
	parts := make([]corev1.ResourceList, len(requests))
	for i, request := range requests {
		parts[i] = make(corev1.ResourceList, len(left))
		for name, value := range left {
			if limit, named := request[name]; named {
				value = min(value, amount(name, limit))
			}
			parts[i][name] = quantity(name, value)
			left[name] -= value
		}
	}
	return parts
}

// ParsePercentage parses a percentage from 0 to 100, with or without a percent sign and spaces.
func ParsePercentage(text string) (int, error) {
	number := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "%"))
	value, err := strconv.Atoi(number)
	if err != nil || value < 0 || value > MaxPercentage {
		return 0, fmt.Errorf("%.40q is not a whole number from 0 to %d", text, MaxPercentage)
	}
	return value, nil
}

// Equal compares two lists by value: 1000m is 1.
func Equal(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, before := range a {
		if now, found := b[name]; !found || before.Cmp(now) != 0 {
			return false
		}
	}
	return true
}

// Differs reports whether a new grant must be written at once: a resource appeared, vanished, ran out or came back, or
// changed by more than threshold percent of its old amount.
func Differs(before, now corev1.ResourceList, threshold int) bool {
	if len(before) != len(now) {
		return true
	}
	for name, quantity := range now {
		past, found := before[name]
		if !found {
			return true
		}
		was, is := amount(name, past), amount(name, quantity)
		if was == is {
			continue
		}
		if was == 0 || is == 0 {
			return true
		}
		change := max(was, is) - min(was, is)
		// In floating point there is no overflow, and the precision suffices.
		if float64(change)*100 > float64(was)*float64(max(threshold, 0)) {
			return true
		}
	}
	return false
}
