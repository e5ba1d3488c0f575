// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// budget selects app=web, and has a status that is up to date.
func budget(desired, current int32, changes ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	made := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 3},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 3, DesiredHealthy: desired, CurrentHealthy: current},
	}
	for _, change := range changes {
		change(made)
	}
	return made
}

func web(healthy bool) State { return State{klabels.Set{"app": "web"}, healthy} }

// pods are so many healthy ones, and others.
func pods(healthy int, others ...Pod) (all []Pod) {
	for range healthy {
		all = append(all, Pod{Exists: true, Now: web(true)})
	}
	return append(all, others...)
}

func unhealthy() Pod             { return Pod{Exists: true, Now: web(false)} }
func changed(now, was State) Pod { return Pod{Exists: true, Now: now, Was: []State{was}} }

func sent(number int32) Memory { return Memory{Sent: true, Number: number} }

func TestDecide(t *testing.T) {
	condition := func(reason string) func(*policyv1.PodDisruptionBudget) {
		return func(b *policyv1.PodDisruptionBudget) {
			b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: reason}}
		}
	}
	selector := func(s *metav1.LabelSelector) func(*policyv1.PodDisruptionBudget) {
		return func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = s }
	}
	for name, row := range map[string]struct {
		budget *policyv1.PodDisruptionBudget
		pods   []Pod
		was    Memory
		want   Memory
		again  time.Duration
		err    error
	}{
		"all pods there":                        {budget(2, 2), pods(2), Memory{}, sent(2), 0, nil},
		"one of three elsewhere, 66% are two":   {budget(2, 3), pods(2), Memory{}, sent(1), 0, nil},
		"enough elsewhere":                      {budget(2, 5), pods(2), Memory{}, sent(0), 0, nil},
		"far more than enough elsewhere":        {budget(2, 9), pods(2), Memory{}, sent(0), 0, nil},
		"the one elsewhere fails":               {budget(2, 2), pods(2), sent(1), sent(2), 0, nil},
		"fewer are healthy than must be":        {budget(3, 2), pods(1, unhealthy()), Memory{}, sent(2), 0, nil},
		"none is healthy":                       {budget(2, 0), pods(0, unhealthy(), unhealthy()), Memory{}, sent(2), 0, nil},
		"maxUnavailable 0":                      {budget(3, 3), pods(1), Memory{}, sent(1), 0, nil},
		"maxUnavailable of more than there are": {budget(0, 3), pods(3), Memory{}, sent(0), 0, nil},
		"a percentage that more pods need":      {budget(5, 8), pods(4), sent(0), sent(1), 0, nil},
		"minAvailable of more than there are":   {budget(9, 2), pods(2), Memory{}, sent(9), 0, nil},
		"more than a number can be":             {budget(All, 0), pods(2), Memory{}, sent(All), 0, nil},
		"a status that lies":                    {budget(-5, -7), pods(1), Memory{}, sent(3), 0, nil},

		"no pod":                 {budget(2, 2), nil, Memory{}, Memory{}, 0, nil},
		"no pod that it selects": {budget(2, 2), []Pod{{Exists: true, Now: State{klabels.Set{"app": "db"}, true}}}, Memory{}, Memory{}, 0, nil},
		"its pods have ended":    {budget(2, 2), []Pod{{Now: web(false)}}, Memory{}, Memory{}, 0, nil},
		"the last pod is gone":   {budget(2, 2), nil, sent(1), Memory{Sent: true, Number: 1, alone: start}, Linger, nil},
		"it was gone for a while": {
			budget(2, 2), nil,
			Memory{Sent: true, Number: 1, alone: start.Add(-Linger / 2)},
			Memory{Sent: true, Number: 1, alone: start.Add(-Linger / 2)},
			Linger / 2, nil,
		},
		"it stays away":           {budget(2, 2), nil, Memory{Sent: true, Number: 1, alone: start.Add(-Linger)}, Memory{}, 0, nil},
		"it is back":              {budget(2, 1), pods(0, unhealthy()), Memory{Sent: true, Number: 1, alone: start}, sent(1), 0, nil},
		"a pod that waits counts": {budget(1, 0), pods(0, unhealthy()), Memory{}, sent(1), 0, nil},
		"an empty selector selects all": {
			budget(1, 1, selector(&metav1.LabelSelector{})),
			[]Pod{{Exists: true, Now: State{klabels.Set{"app": "db"}, true}}},
			Memory{},
			sent(1), 0, nil,
		},
		"no selector selects none": {budget(1, 1, selector(nil)), pods(1), Memory{}, Memory{}, 0, nil},

		"the status is older than the budget": {
			budget(1, 1, func(b *policyv1.PodDisruptionBudget) { b.Generation = 4 }), pods(1), sent(7), sent(7), 0,
			ErrNotObserved,
		},
		"there is no status yet": {
			budget(0, 0, func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = 0 }), pods(1),
			Memory{},
			Memory{},
			0, ErrNotObserved,
		},
		"Kubernetes cannot evaluate it": {budget(0, 0, condition(policyv1.SyncFailedReason)), pods(1), sent(1), sent(All), 0, nil},
		"nor has it ever been able to": {budget(0, 0, condition(policyv1.SyncFailedReason),
			func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = 0 }), pods(1), Memory{}, sent(All), 0, nil},
		"it allows none now":               {budget(2, 2, condition(policyv1.InsufficientPodsReason)), pods(2), Memory{}, sent(2), 0, nil},
		"Kubernetes can evaluate it again": {budget(1, 1), pods(1), sent(All), Memory{Sent: true, Number: All, enough: start}, Settle, nil},
		"a smaller number waits":           {budget(2, 3), pods(2), sent(2), Memory{Sent: true, Number: 2, enough: start}, Settle, nil},
		"it waits on": {
			budget(2, 3), pods(2),
			Memory{Sent: true, Number: 2, enough: start.Add(-time.Second)},
			Memory{Sent: true, Number: 2, enough: start.Add(-time.Second)},
			Settle - time.Second, nil,
		},
		"it has been enough":                    {budget(2, 3), pods(2), Memory{Sent: true, Number: 2, enough: start.Add(-Settle)}, sent(1), 0, nil},
		"it was not enough for all the time":    {budget(2, 2), pods(2), Memory{Sent: true, Number: 2, enough: start.Add(-time.Second)}, sent(2), 0, nil},
		"a larger number while a smaller waits": {budget(4, 3), pods(2), Memory{Sent: true, Number: 2, enough: start.Add(-time.Second)}, sent(3), 0, nil},

		// The pods of the node and the status change one after the other. The number does not.
		"a pod became healthy, the status does not know": {budget(2, 2), pods(1, changed(web(true), web(false))), sent(1), sent(1), Lag, nil},
		"a pod became healthy, the status knows":         {budget(2, 3), pods(1, changed(web(true), web(false))), sent(1), sent(1), Lag, nil},
		"a pod failed, the status does not know":         {budget(2, 3), pods(1, changed(web(false), web(true))), sent(1), sent(1), Lag, nil},
		"a pod failed, the status knows":                 {budget(2, 2), pods(1, changed(web(false), web(true))), sent(1), sent(1), Lag, nil},
		"a pod was removed, the status does not know":    {budget(2, 3), pods(1, Pod{Was: []State{web(true)}}), sent(1), sent(1), Lag, nil},
		"a pod flickers, the status has the middle": {
			budget(2, 2), pods(1, Pod{Exists: true, Now: web(true), Was: []State{web(true), web(false)}}),
			sent(1), sent(1), Lag, nil,
		},
		"a pod got the label, the status does not know": {
			budget(2, 2), pods(1, changed(web(true), State{klabels.Set{"app": "new"}, true})), sent(1), sent(1),
			Lag, nil,
		},
		"a pod changed that it does not select": {
			budget(2, 3),
			pods(2, changed(State{klabels.Set{"app": "db"}, true}, State{klabels.Set{"app": "db"}, false})), sent(1), sent(1), 0, nil,
		},
		"a pod is evicted here, the status counts it": {
			budget(2, 3, leaves), pods(1, Pod{Name: "leaving", Exists: true, Now: web(true)}), sent(1), sent(1),
			Lag, nil,
		},
		"a pod is evicted here, the status does not any more": {
			budget(2, 2, leaves), pods(1, Pod{Name: "leaving", Exists: true, Now: web(true)}), sent(1), sent(1),
			Lag, nil,
		},
		"one failed here and one elsewhere":              {budget(2, 1), pods(1, changed(web(false), web(true))), sent(1), sent(3), Lag, nil},
		"nothing is known before, and a pod just failed": {budget(2, 3), pods(1, changed(web(false), web(true))), Memory{}, sent(1), Lag, nil},
	} {
		t.Run(name, func(t *testing.T) {
			is, again, err := Decide(row.budget, row.pods, row.was, start)
			if !errors.Is(err, row.err) || is != row.want || again != row.again {
				t.Errorf("got %+v again after %v (%v), want %+v after %v (%v)", is, again, err, row.want, row.again, row.err)
			}
		})
	}
}

func leaves(b *policyv1.PodDisruptionBudget) {
	b.Status.DisruptedPods = map[string]metav1.Time{"leaving": {Time: start}}
}

func TestInvalidSelector(t *testing.T) {
	broken := budget(1, 1)
	broken.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}
	if is, _, err := Decide(broken, pods(1), sent(4), start); err == nil || is != sent(4) {
		t.Errorf("got %+v, %v", is, err)
	}
}

func TestStateOf(t *testing.T) {
	ready := []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for name, row := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"ready":     {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready}}, true},
		"not ready": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}, false},
		"being deleted": {
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: start}}, Status: corev1.PodStatus{Conditions: ready}},
			false,
		},
		"failed":    {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Conditions: ready}}, false},
		"succeeded": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded, Conditions: ready}}, false},
		"none":      {nil, false},
	} {
		if got := StateOf(row.pod).Healthy; got != row.want {
			t.Errorf("%s: healthy %t, want %t", name, got, row.want)
		}
	}
}

// world is a cluster with pods of a budget, some at the peer, whose status lags behind.
type world struct {
	here, elsewhere []bool // whether each pod is healthy
	counted         int32  // what is in the status
	desired         int32
	changes         []change
	memory          Memory
	writes          int
}

type change struct {
	pod int
	at  time.Time
	was State
}

func healthy(all []bool) (n int32) {
	for _, one := range all {
		if one {
			n++
		}
	}
	return n
}

func (w *world) set(pod int, to bool, now time.Time) {
	if w.here[pod] != to {
		w.changes = append(w.changes, change{pod, now, web(w.here[pod])})
		w.here[pod] = to
	}
}

func (w *world) decide(t *testing.T, now time.Time) {
	t.Helper()
	all := make([]Pod, len(w.here))
	for i, is := range w.here {
		all[i] = Pod{Exists: true, Now: web(is)}
	}
	for _, one := range w.changes {
		if now.Sub(one.at) < Lag {
			all[one.pod].Was = append(all[one.pod].Was, one.was)
		}
	}
	is, _, err := Decide(budget(w.desired, w.counted), all, w.memory, now)
	if err != nil {
		t.Fatal(err)
	}
	if is.Number != w.memory.Number || is.Sent != w.memory.Sent {
		w.writes++
	}
	w.memory = is
}

// TestDrains: a drain of the peer evicts whenever the number there allows it. The status lags up to three seconds behind all pods. With the pods elsewhere in
// peace, the budget is never broken, the drain ends, and the number is written once.
func TestDrains(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		here, elsewhere := 1+random.IntN(6), random.IntN(4)
		w := &world{here: make([]bool, here), elsewhere: make([]bool, elsewhere)}
		for i := range w.here {
			w.here[i] = true
		}
		for i := range w.elsewhere {
			w.elsewhere[i] = true
		}
		total := int32(here + elsewhere) //nolint:gosec // small
		w.desired = random.Int32N(total) // one may go at least
		w.counted = total
		now, drained, down, counts := start, 0, -1, start
		w.decide(t, now)
		for second := 0; drained < here; second++ {
			if second > 600 {
				t.Fatalf("seed %d: the drain hangs with %+v", seed, w)
			}
			now = now.Add(time.Second)
			switch {
			case down < 0 && healthy(w.here) > w.memory.Number: // the eviction API there
				down = drained
				w.set(down, false, now)
			case down >= 0 && random.IntN(4) == 0:
				w.set(down, true, now)
				down, drained = -1, drained+1
			}
			if now.Sub(counts) > time.Duration(random.IntN(3))*time.Second {
				w.counted, counts = healthy(w.here)+healthy(w.elsewhere), now
			}
			w.decide(t, now)
			if is := healthy(w.here) + healthy(w.elsewhere); is < w.desired {
				t.Fatalf("seed %d: %d healthy of %d that must be, with %+v", seed, is, w.desired, w)
			}
		}
		if w.writes != 1 {
			t.Errorf("seed %d: %d writes for a drain, want 1: %+v", seed, w.writes, w)
		}
	}
}

// TestNotTooSmallForLong: whatever changes in both clusters, once everything has been still for a while the number is exact.
func TestNotTooSmallForLong(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a test
		w := &world{here: make([]bool, 1+random.IntN(6)), elsewhere: make([]bool, random.IntN(6)), desired: random.Int32N(8)}
		now := start
		for range 100 {
			now = now.Add(time.Duration(random.IntN(4000)) * time.Millisecond)
			switch random.IntN(3) {
			case 0:
				w.set(random.IntN(len(w.here)), random.IntN(2) == 0, now)
			case 1:
				if len(w.elsewhere) > 0 {
					w.elsewhere[random.IntN(len(w.elsewhere))] = random.IntN(2) == 0
				}
			default:
				w.counted = healthy(w.here) + healthy(w.elsewhere)
			}
			w.decide(t, now)
		}
		w.counted = healthy(w.here) + healthy(w.elsewhere)
		for range 3 {
			w.decide(t, now)
			now = now.Add(max(Lag, Settle))
		}
		if want := max(w.desired-healthy(w.elsewhere), 0); w.memory.Number != want {
			t.Errorf("seed %d: number %d, want %d", seed, w.memory.Number, want)
		}
	}
}

// TestKubernetes: what Kubernetes makes of a budget's forms is in the status, so none of them is read here.
func TestKubernetes(t *testing.T) {
	for _, spec := range []policyv1.PodDisruptionBudgetSpec{
		{MinAvailable: new(intstr.FromString("66%"))}, {MaxUnavailable: new(intstr.FromInt32(1))}, {MaxUnavailable: new(intstr.FromString("34%"))}, {},
	} {
		b := budget(2, 3)
		spec.Selector = b.Spec.Selector
		b.Spec = spec
		if is, _, err := Decide(b, pods(2), Memory{}, start); err != nil || is != sent(1) {
			t.Errorf("%+v: got %+v, %v", spec, is, err)
		}
	}
}
