// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/kube/podphase"
	"liqo.io/liqo/internal/offloading/reflection/events"
)

// A peer may fail every pod as it comes. A ReplicaSet replaces failed pods without delay, so such a peer would keep the controllers of this cluster
// busy and fill its store with dead pods. A pod that is restarted for ever fails rarely: it is evicted, or its node has no capacity for it.
const (
	// DefaultFailureLimit is how many pods may fail within the window.
	DefaultFailureLimit = 50
	failureWindow       = 10 * time.Minute
	// failurePause is for how long the node gets no pods after the limit is reached.
	failurePause = 10 * time.Minute
)

// breaker opens when too many pods of the node fail.
type breaker struct {
	limit int

	mu      sync.Mutex
	failed  []time.Time
	until   time.Time
	changed func()
}

// record counts a pod that failed. It returns true if that opens the breaker.
func (b *breaker) record(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Before(b.until) {
		return false
	}
	b.failed = slices.DeleteFunc(b.failed, func(at time.Time) bool { return now.Sub(at) >= failureWindow })
	if b.failed = append(b.failed, now); len(b.failed) < b.limit {
		return false
	}
	b.failed, b.until = nil, now.Add(failurePause)
	if b.changed != nil {
		b.changed()
		time.AfterFunc(failurePause, b.changed)
	}
	return true
}

// message returns why the node gets no pods; empty if it gets them.
func (b *breaker) message(now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !now.Before(b.until) {
		return ""
	}
	return fmt.Sprintf("%d pods that are restarted for ever failed in the remote cluster within %s: no pods are scheduled there until %s; ask its administrator why they fail, and see their messages",
		b.limit, failureWindow, b.until.UTC().Format(time.RFC3339))
}

// Failing returns why the node must get no more pods; empty if it may.
func (p *Pods) Failing() string { return p.failures.message(time.Now()) }

// OnFailing sets the function that is called when the result of Failing has changed. Call it before Run of the engine.
func (p *Pods) OnFailing(changed func()) { p.failures.changed = changed }

// countFailure counts a pod that the peer has just reported as failed.
func (p *Pods) countFailure(local *corev1.Pod, status *corev1.PodStatus) {
	if policy := local.Spec.RestartPolicy; status.Phase != corev1.PodFailed || policy != "" && policy != corev1.RestartPolicyAlways || local.DeletionTimestamp != nil || podphase.Final(local.Status.Phase) {
		return
	}
	if now := time.Now(); p.failures.record(now) {
		message := p.failures.message(now)
		p.engine.Log.Info("too many pods fail in the remote cluster", "message", message)
		p.engine.Recorder.Failed(local, Kind, events.ReasonFailing, fmt.Errorf("%s", message))
	}
}
