// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math"
	"math/bits"

	corev1 "k8s.io/api/core/v1"
)

// sum is a sum of amounts in 128 bits. Of what a grant does not name, pods may have any amount, so the sum of all may exceed 64 bits, and has to
// become smaller again.
type sum struct {
	high int64
	low  uint64
}

func (s sum) plus(value int64) sum {
	low, carry := bits.Add64(s.low, uint64(value), 0)
	return sum{s.high + value>>63 + int64(carry), low} // value>>63 are the 64 bits above the value: 0 or -1
}

func (s sum) without(other sum) sum {
	low, borrow := bits.Sub64(s.low, other.low, 0)
	return sum{s.high - other.high - int64(borrow), low}
}

// amount returns the sum, or the largest amount if it is larger.
func (s sum) amount() int64 {
	if s.high > 0 || s.high == 0 && s.low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(s.low)
}

// sums are sums by resource. None is zero.
type sums map[corev1.ResourceName]sum

// add adds to a sum of a peer. Peers without sums are not listed.
func add(to map[string]sums, peer string, name corev1.ResourceName, value int64) {
	now := to[peer][name].plus(value)
	switch {
	case now != sum{}:
		if to[peer] == nil {
			to[peer] = sums{}
		}
		to[peer][name] = now
	default:
		if delete(to[peer], name); len(to[peer]) == 0 {
			delete(to, peer)
		}
	}
}
