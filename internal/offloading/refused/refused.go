// SPDX-License-Identifier: Apache-2.0

package refused

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"liqo.io/liqo/internal/offloading/verdict"
)

const (
	// firstRetry is when to repeat a write, for the first time, that a rule of this cluster has refused. Each further pause is twice as long.
	firstRetry = 500 * time.Millisecond
	// defaultRefusalRetry is the longest pause: no event leads here when the administrator changes the rule. The virtual kubelet of the peer waits as long.
	defaultRefusalRetry = 5 * time.Minute
	// fitRetry is the longest pause while what is refused may still fit soon, once other pods have ended: quotas and grants. soon are that many attempts.
	fitRetry = 30 * time.Second
	soon     = 30
	// maxRefused bounds how many refusals are remembered. Those beyond are logged each time.
	maxRefused = 50_000
)

// Error is the error of a write that a rule of this cluster refuses. mayFit: it may fit later without a change of the rule.
type Error struct {
	error
	mayFit bool
}

func (r Error) Unwrap() error { return r.error }

// Stays marks the error of a write that is refused until a rule, or a version, changes.
func Stays(err error) error { return Error{err, false} }

// UntilFits marks the error of a write that is refused until the grant or a quota has enough left, or until this cluster lets the peer use it.
func UntilFits(err error) error { return Error{err, true} }

// ByRule marks the error of a write of an object for a peer that judges the object. What is refused may not stay so: administrators change rules, quotas get
// free, and limit ranges and webhooks change an object before its fields are judged.
func ByRule(err error) error {
	if verdict.Judges(err) {
		return Error{err, apierrors.IsForbidden(err)}
	}
	return err
}

// Memory decides when what was refused is tried again, and logs each refusal once: again if its text changes.
type Memory struct {
	longest time.Duration
	mu      sync.Mutex
	last    map[types.NamespacedName]refusal
}

type refusal struct {
	text  string
	times int
}

func New(longest time.Duration) *Memory {
	if longest == 0 {
		longest = defaultRefusalRetry
	}
	return &Memory{longest: longest, last: map[types.NamespacedName]refusal{}}
}

// Retry replaces the backoff after an error that is refused by a pause that grows.
func (r *Memory) Retry(ctx context.Context, request reconcile.Request, result reconcile.Result, err error) (reconcile.Result, error) {
	var by Error
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.As(err, &by) {
		if err == nil {
			delete(r.last, request.NamespacedName)
		}
		return result, err
	}
	wait, isNew := r.pause(request.NamespacedName, by)
	if isNew {
		log.FromContext(ctx).Error(err, "refused, and tried again ever more rarely", "after", wait)
	}
	if result.RequeueAfter == 0 || result.RequeueAfter > wait {
		result.RequeueAfter = wait
	}
	return result, nil
}

// pause returns how long to wait, and whether the text is another than that of the last refusal. The caller holds the lock.
func (r *Memory) pause(name types.NamespacedName, by Error) (wait time.Duration, isNew bool) {
	longest, last := r.longest, r.last[name]
	if by.mayFit && last.times < soon {
		longest = min(longest, fitRetry)
	}
	wait = min(firstRetry<<min(last.times, 20), longest)
	isNew = last.text != by.Error()
	if _, ok := r.last[name]; ok || len(r.last) < maxRefused {
		r.last[name] = refusal{by.Error(), last.times + 1}
	}
	return wait, isNew
}
