// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"

	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/podplan"
)

const (
	// Lag is for how long the status of a budget may not count what a pod has become: the controller that writes it sees pods later than we do.
	Lag = 5 * time.Second
	// Settle is for how long a smaller number must have been enough before it is sent. One that is too large delays a
	// drain; one that is too small breaks the budget.
	Settle = 5 * time.Second
	// Linger is for how long a budget stays after its last pod on the node, so that the replacement of a pod costs no write.
	Linger = time.Minute
	// All pods: nothing may be evicted.
	All = math.MaxInt32
)

// ErrNotObserved means that Kubernetes has not evaluated the budget as it is now.
var ErrNotObserved = errors.New("the budget has not been evaluated by Kubernetes yet")

// State is what a budget sees of a pod.
type State struct {
	Labels  klabels.Set
	Healthy bool
}

// Pod is one of the node, in the namespace of the budget.
type Pod struct {
	Name string
	// Exists: it has not ended, and Now is what it is.
	Exists bool
	Now    State
	// Was is what it was at moments of the last Lag; empty if it was the same for longer.
	Was []State
}

// StateOf returns what a budget sees of a pod. A pod that ends or that is being deleted is not healthy.
func StateOf(pod *corev1.Pod) State {
	if pod == nil {
		return State{}
	}
	return State{Labels: pod.Labels, Healthy: pod.DeletionTimestamp == nil && !podphase.Final(pod.Status.Phase) && podplan.Ready(&pod.Status)}
}

// Memory is what was decided last about a budget.
type Memory struct {
	// Sent: the peer is to have a budget with this number.
	Sent   bool
	Number int32
	// enough is since when a smaller number would be enough, alone since when no pod is selected; zero: it is not so.
	enough, alone time.Time
}

// Selector returns the selector of a budget. One that is missing selects nothing.
func Selector(budget *policyv1.PodDisruptionBudget) (klabels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of budget %s/%s: %w", budget.Namespace, budget.Name, err)
	}
	return selector, nil
}

// Decide returns what is to be remembered of a budget from now on, which is also whether the peer gets one, and after how long to decide again; 0: when
// something changes. pods are those of the node in the namespace. The error means that what the peer has is right until more is known.
//
// Of the pods that the budget needs, those that are healthy elsewhere are there already: the number is desiredHealthy − (currentHealthy − healthy pods of the
// node). It does not depend on the health of the pods of the node, because the peer counts them itself. But while the status lags behind, it is only known
// between two bounds: a number that is within them stays.
func Decide(budget *policyv1.PodDisruptionBudget, pods []Pod, was Memory, now time.Time) (Memory, time.Duration, error) {
	selector, err := Selector(budget)
	if err != nil {
		return was, 0, err
	}
	selected, least, most := count(budget, selector, pods)
	if selected == 0 {
		return withoutPods(was, now)
	}
	was.alone = time.Time{}
	status := &budget.Status
	switch failed := unknown(status); {
	case failed:
		least, most = All, All
	case status.ObservedGeneration < budget.Generation:
		return was, 0, ErrNotObserved
	default:
		missing := int64(status.DesiredHealthy) - int64(status.CurrentHealthy)
		least, most = bounded(missing+least), bounded(missing+most)
	}
	is, again := towards(was, least, most, now)
	if least != most && (again == 0 || again > Lag) {
		again = Lag // then it is known exactly
	}
	return is, again, nil
}

// unknown reports whether Kubernetes cannot evaluate a budget, such as a percentage of pods whose controller has no scale. It
// then lets no pod be evicted here, so none is there.
func unknown(status *policyv1.PodDisruptionBudgetStatus) bool {
	for i := range status.Conditions {
		if seen := &status.Conditions[i]; seen.Type == policyv1.DisruptionAllowedCondition {
			return seen.Status == metav1.ConditionFalse && seen.Reason == policyv1.SyncFailedReason
		}
	}
	return false
}

// count returns how many pods a budget selects, and between which bounds the number of those is that its status counts as healthy.
func count(budget *policyv1.PodDisruptionBudget, selector klabels.Selector, pods []Pod) (selected int, least, most int64) {
	for i := range pods {
		pod := &pods[i]
		if pod.Exists && selector.Matches(pod.Now.Labels) {
			selected++
		}
		counts := func(state State) bool { return state.Healthy && selector.Matches(state.Labels) }
		is, was := counts(pod.Now), counts(pod.Now)
		for _, seen := range pod.Was {
			is, was = is || counts(seen), was && counts(seen)
		}
		if _, leaving := budget.Status.DisruptedPods[pod.Name]; leaving {
			was = false // Kubernetes stops to count it before its deletion
		}
		if is {
			most++
		}
		if was {
			least++
		}
	}
	return selected, least, most
}

func bounded(number int64) int64 { return min(max(number, 0), All) }

// withoutPods keeps a budget without pods for a while.
func withoutPods(was Memory, now time.Time) (Memory, time.Duration, error) {
	if !was.Sent {
		return Memory{}, 0, nil
	}
	if was.alone.IsZero() {
		was.alone = now
	}
	if left := was.alone.Add(Linger).Sub(now); left > 0 {
		return was, left, nil
	}
	return Memory{}, 0, nil
}

// towards returns the next number, which is to be between least and most: a larger one at once, a smaller one once it has been enough for a while.
func towards(was Memory, least, most int64, now time.Time) (Memory, time.Duration) {
	switch number := int64(was.Number); {
	case !was.Sent || number < least:
		return Memory{Sent: true, Number: int32(most)}, 0 //nolint:gosec // bounded
	case number <= most:
		was.enough = time.Time{}
		return was, 0
	}
	if was.enough.IsZero() {
		was.enough = now
	}
	if left := was.enough.Add(Settle).Sub(now); left > 0 {
		return was, left
	}
	return Memory{Sent: true, Number: int32(most)}, 0 //nolint:gosec // bounded
}
