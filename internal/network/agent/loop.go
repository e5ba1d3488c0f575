// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/plan"
)

const (
	// resync is the time after which an iteration runs without an event.
	resync = time.Second
	// debounce is how long kernel events are collected: most of them are our own doing, or concern others. The wait is at least
	// debounceFactor times as long as the last iteration took, so that a busy host does not keep the agent busy.
	debounce       = 100 * time.Millisecond
	debounceFactor = 10
	// applyTimeout ends an attempt to change a kernel that does not answer.
	applyTimeout = 10 * time.Second
	// stuckAfter is the time without an iteration after which the loop counts as dead. It is long: packets pass without the loop, a restart interrupts
	// them, and a kernel that is busy with the networks of many pods answers each of our requests after tens of seconds.
	stuckAfter = 5 * time.Minute
)

// Host is the host that the loop keeps in its planned state.
type Host interface {
	// Apply brings the host to a state and returns what it changed.
	Apply(ctx context.Context, state hoststate.State) (changes []host.Change, err error)
	// Changed has a value when another program may have changed the host.
	Changed() <-chan struct{}
}

// Role is what a gateway and a node do differently. The loop never calls two of its methods at once.
type Role interface {
	// Observe returns what is known now.
	Observe(ctx context.Context, now time.Time) Observation
	// Plan may return a state together with an error, see [plan.ForNode].
	Plan(snapshot plan.Snapshot) (hoststate.State, error)
	// Done is called at the end of each iteration.
	Done(iteration Iteration)
}

// Observation is what is known at one time.
type Observation struct {
	Snapshot plan.Snapshot
	// Known is false as long as too little is known to plan; then the loop leaves the host alone.
	Known bool
	// Err names the inputs that could not be used; the others count.
	Err error
	// RequeueAt is when the next iteration must run at the latest; zero for no such time.
	RequeueAt time.Time
}

// Iteration is what one iteration of the loop did.
type Iteration struct {
	At time.Time
	// Known is that of the observation; without it there is neither snapshot nor state.
	Known    bool
	Snapshot plan.Snapshot
	State    hoststate.State
	Changes  []host.Change
	// Applied is true if the host is as planned. Err joins the errors of all steps.
	Applied bool
	Err     error
}

// Loop observes, plans and applies for one host.
type Loop struct {
	host    Host
	role    Role
	log     logr.Logger
	trigger chan struct{}

	mu            sync.Mutex
	lastIteration time.Time
	applied       bool
}

func NewLoop(host Host, role Role, log logr.Logger) *Loop {
	return &Loop{host: host, role: role, log: log, trigger: make(chan struct{}, 1), lastIteration: time.Now()}
}

// Trigger starts an iteration at once, or right after the present one. It never blocks.
func (l *Loop) Trigger() {
	select {
	case l.trigger <- struct{}{}:
	default:
	}
}

// Ready reports whether a plan was applied once. It does not depend on the API server.
func (l *Loop) Ready() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.applied
}

// Alive is false if the loop is stuck. It does not depend on the API server.
func (l *Loop) Alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.lastIteration) < stuckAfter
}

func (l *Loop) Run(ctx context.Context) error {
	kernel, logged := l.host.Changed(), ""
	timer := time.NewTimer(resync)
	defer timer.Stop()
	for ctx.Err() == nil {
		iteration, requeueAt := l.iterate(ctx)
		if ctx.Err() != nil {
			break // the errors come from the end of ctx
		}
		logged = l.logOutcome(iteration, logged)
		l.role.Done(iteration)
		took := time.Since(iteration.At)
		wake := iteration.At.Add(resync)
		if !requeueAt.IsZero() && requeueAt.Before(wake) {
			wake = requeueAt
		}
		timer.Reset(max(0, time.Until(wake)))
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-l.trigger:
				waiting = false
			case <-timer.C:
				waiting = false
			case _, open := <-kernel:
				if !open {
					kernel = nil // only the timer is left
					continue
				}
				if soon := time.Now().Add(max(debounce, debounceFactor*took)); soon.Before(wake) {
					wake = soon
					timer.Reset(time.Until(wake))
				}
			}
		}
	}
	return nil
}

// iterate observes, plans and applies. It returns when the next iteration must run at the latest, zero for no such time.
func (l *Loop) iterate(ctx context.Context) (Iteration, time.Time) {
	iteration := Iteration{At: time.Now()}
	observed := l.role.Observe(ctx, iteration.At)
	iteration.Known, iteration.Snapshot, iteration.Err = observed.Known, observed.Snapshot, observed.Err
	if observed.Known {
		var err error
		iteration.State, err = l.role.Plan(observed.Snapshot)
		iteration.Err = errors.Join(iteration.Err, err)
		if !errors.Is(err, plan.ErrNoPlan) {
			limited, cancel := context.WithTimeout(ctx, applyTimeout)
			iteration.Changes, err = l.host.Apply(limited, iteration.State)
			cancel()
			if err != nil {
				err = fmt.Errorf("apply the plan: %w", err)
			}
			iteration.Applied, iteration.Err = err == nil, errors.Join(iteration.Err, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastIteration, l.applied = time.Now(), l.applied || iteration.Applied
	return iteration, observed.RequeueAt
}

// logOutcome logs what changed, and the errors if they differ from those logged last. It returns the text of the present errors.
func (l *Loop) logOutcome(iteration Iteration, logged string) string {
	if len(iteration.Changes) > 0 {
		l.log.Info("host changed", "count", len(iteration.Changes), "changes", firstOf(iteration.Changes))
	}
	text := ""
	if iteration.Err != nil {
		text = iteration.Err.Error()
	}
	switch {
	case text == logged:
	case text == "":
		l.log.Info("host matches its plan again")
	default:
		l.log.Error(iteration.Err, "host does not match its plan", "applied", iteration.Applied)
	}
	return text
}

// firstOf bounds a log line when a host is set up.
func firstOf(changes []host.Change) (texts []string) {
	const maxLogged = 12
	for _, change := range changes[:min(maxLogged, len(changes))] {
		texts = append(texts, change.String())
	}
	if len(changes) > maxLogged {
		texts = append(texts, "...")
	}
	return texts
}
