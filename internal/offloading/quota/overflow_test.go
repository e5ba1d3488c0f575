// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// TestAttackNM2Overflow: limits of a resource that the grant does not name are compared with nothing, and many of them let no request of it pass.
func TestAttackNM2Overflow(t *testing.T) {
	l := NewLedger(false, testDefaults)
	l.SetGrant("rome-id", slice, list("cpu", "1000", "memory", "1Ti", "pods", "20000"))
	endless := container(list("ephemeral-storage", "0"), list("ephemeral-storage", "1125899906842624"))
	const pods = 1<<13 + 4 // 2^50 each
	for i := range pods {
		if problem := l.Admit("rome-id", named(fmt.Sprint(i), endless), time.Unix(0, 0), false); problem != "" {
			t.Fatalf("pod %d: %s", i, problem)
		}
		l.Set("rome-id", named(fmt.Sprint(i), endless))
	}
	greedy := named("greedy", container(list("ephemeral-storage", "1Ti"), nil))
	if problem := l.Admit("rome-id", greedy, time.Unix(0, 0), false); !strings.Contains(problem, "1Ti of ephemeral-storage") {
		t.Errorf("a request of what is not granted: %q", problem)
	}
	larger := named("0", container(list("ephemeral-storage", "1Ti"), list("ephemeral-storage", "1125899906842624")))
	for _, what := range []string{"a pod that grows to what is not granted", "the same after a restart"} {
		if problem := l.Grow("rome-id", larger); !strings.Contains(problem, "1Ti of ephemeral-storage") {
			t.Errorf("%s: %q", what, problem)
		}
		l.SetUnproven("rome-id", larger)
	}
	for i := range pods {
		l.Delete(named(fmt.Sprint(i), nil))
	}
	l.SetGrant("rome-id", slice, list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "1Ti", "pods", "1"))
	if problem := l.Admit("rome-id", greedy, time.Unix(0, 0), false); problem != "" {
		t.Errorf("once the pods are gone and it is granted: %s", problem)
	}
}

// TestSum: a sum beyond an amount becomes smaller again by what was added.
func TestSum(t *testing.T) {
	var all sum
	for range 5 {
		all = all.plus(math.MaxInt64)
	}
	most := sum{}.plus(math.MaxInt64)
	if all.amount() != math.MaxInt64 || all.without(most).amount() != math.MaxInt64 || most.without(all).high >= 0 {
		t.Errorf("five of the largest amount: %v, without one: %v, the reverse: %v", all, all.without(most), most.without(all))
	}
	for range 5 {
		all = all.plus(-math.MaxInt64)
	}
	if all != (sum{}) || (sum{}).plus(7).without(sum{}.plus(3)).amount() != 4 || (sum{}).plus(3).plus(-7).amount() != -4 {
		t.Errorf("nothing is left, and is %v", all)
	}
}
