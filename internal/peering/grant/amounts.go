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

// MaxPercentage is all that is free.
const MaxPercentage = 100

// mega is the grain of memory, as documented.
const mega = 1_000_000

// Amounts counts resources in whole numbers: cpu in thousandths, all others in their own unit (bytes, devices,
// pods). Sums that would not fit stay at the largest number.
type Amounts map[corev1.ResourceName]int64

// Count turns quantities into amounts. Negative quantities count as nothing, fractions as one more.
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
		// Quantity would wrap around silently.
		return math.MaxInt64
	default:
		return value()
	}
}

// add puts b on top of a.
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

// Shared says whether a resource is granted at all. How many volumes can be attached is a limit of each single
// node and its driver; the sum of it means nothing on one virtual node, where no volume is ever attached.
func Shared(name corev1.ResourceName) bool {
	return !strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix)
}

// Share is the given percentage of what is free, for each resource that the nodes have:
//   - cpu in thousandths, memory in megabytes, local storage in bytes, all rounded down;
//   - what comes in pieces (devices, pods, huge pages) to the nearest whole piece, and at least one if one is free
//     and anything is to be shared: one GPU at 90 % is one GPU.
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
	grain, pieces := grain(name)
	if !pieces {
		whole, _ := percent(value, percentage)
		return whole - whole%grain
	}
	whole, rest := percent(value/grain, percentage)
	if rest >= 50 || whole == 0 && rest > 0 {
		whole++
	}
	return whole * grain
}

// percent is value*percentage/100 and the hundredths that are left over, without an overflow in between.
func percent(value, percentage int64) (whole, rest int64) {
	rest = value % 100 * percentage
	return value/100*percentage + rest/100, rest % 100
}

// grain is the smallest amount of a resource that is granted, and whether it comes in pieces that somebody
// would miss.
func grain(name corev1.ResourceName) (size int64, pieces bool) {
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

// Divide hands a grant out to several wishes of the same peer, in their order, so that asking twice does not bring
// twice as much. A wish bounds the resources it names; what it does not name it takes whole.
func Divide(total corev1.ResourceList, wishes []corev1.ResourceList) []corev1.ResourceList {
	left := Count(total)
	parts := make([]corev1.ResourceList, len(wishes))
	for i, wish := range wishes {
		parts[i] = make(corev1.ResourceList, len(left))
		for name, value := range left {
			if bound, named := wish[name]; named {
				value = min(value, amount(name, bound))
			}
			parts[i][name] = quantity(name, value)
			left[name] -= value
		}
	}
	return parts
}

// ParsePercentage reads a percentage from 0 to 100, as people write it in a ConfigMap or an annotation.
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
		if now, there := b[name]; !there || before.Cmp(now) != 0 {
			return false
		}
	}
	return true
}

// Differs says whether a new grant is so far from the old one that the peer must know at once: a resource
// appeared, vanished, ran out or came back, or changed by more than threshold percent of what it was.
func Differs(before, now corev1.ResourceList, threshold int) bool {
	if len(before) != len(now) {
		return true
	}
	for name, quantity := range now {
		past, there := before[name]
		if !there {
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
		// In floating point: no overflow, and the last digit decides nothing.
		if float64(change)*100 > float64(was)*float64(max(threshold, 0)) {
			return true
		}
	}
	return false
}
