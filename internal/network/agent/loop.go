// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"liqo.io/liqo/internal/network/plan"
)

const (
	// slow is the time after which the host is looked at though nothing was heard.
	slow = time.Second
	// settle is how long events of the kernel may collect: most of them are our own doing.
	settle = 100 * time.Millisecond
	// applyTimeout ends an attempt on a kernel that does not answer.
	applyTimeout = 10 * time.Second
	// stuck is when a loop that does not turn is dead.
	stuck = time.Minute
)

// Host is the host that is kept.
type Host interface {
	// Apply brings it to a state and says what it changed.
	Apply(ctx context.Context, state plan.HostState) (changes []string, err error)
	// Changed tells that somebody else may have changed something.
	Changed() <-chan struct{}
}

// Role is what a gateway and a node do differently. Its methods are called by the loop, never two at once.
type Role interface {
	// Look says what is known now.
	Look(ctx context.Context, now time.Time) Look
	// Plan may give a state together with an error, see [plan.ForNode].
	Plan(snapshot plan.Snapshot) (plan.HostState, error)
	// Done is told the end of each round.
	Done(round Round)
}

// Look is what is known at one time.
type Look struct {
	Snapshot plan.Snapshot
	// Known is false as long as nothing can be said; then the host is left alone.
	Known bool
	// Err is what is wrong with some of what was read; the rest counts.
	Err error
	// Again is when to look again, if that is soon; zero if not.
	Again time.Time
}

// Round is what one turn of the loop did.
type Round struct {
	At time.Time
	// Known is that of the look; without it there is neither snapshot nor state.
	Known    bool
	Snapshot plan.Snapshot
	State    plan.HostState
	Changes  []string
	// Applied is true if the host is as planned. Err is what went wrong, in whatever step.
	Applied bool
	Err     error
}

// Loop turns for one host.
type Loop struct {
	host    Host
	role    Role
	log     logr.Logger
	trigger chan struct{}

	mu      sync.Mutex
	turned  time.Time
	applied bool
}

// NewLoop makes a loop; Run turns it.
func NewLoop(host Host, role Role, log logr.Logger) *Loop {
	return &Loop{host: host, role: role, log: log, trigger: make(chan struct{}, 1), turned: time.Now()}
}

// Trigger makes the loop turn at once. It never waits.
func (l *Loop) Trigger() {
	select {
	case l.trigger <- struct{}{}:
	default:
	}
}

// Ready tells whether the host was brought to a plan once. Alive tells whether the loop turns; neither asks the API server.
func (l *Loop) Ready() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.applied
}

// Alive is false if the loop is stuck.
func (l *Loop) Alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.turned) < stuck
}

// Run works until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	kernel, told := l.host.Changed(), ""
	timer := time.NewTimer(slow)
	defer timer.Stop()
	for ctx.Err() == nil {
		round, again := l.turn(ctx)
		if ctx.Err() != nil {
			break // what failed, failed because of that
		}
		told = l.tell(round, told)
		l.role.Done(round)
		wake := round.At.Add(slow)
		if !again.IsZero() && again.Before(wake) {
			wake = again
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
					kernel = nil // the timer is left
					continue
				}
				timer.Reset(min(settle, max(0, time.Until(wake))))
			}
		}
	}
	return nil
}

// turn looks, plans and applies.
func (l *Loop) turn(ctx context.Context) (Round, time.Time) {
	round := Round{At: time.Now()}
	look := l.role.Look(ctx, round.At)
	round.Known, round.Snapshot, round.Err = look.Known, look.Snapshot, look.Err
	if look.Known {
		var err error
		round.State, err = l.role.Plan(look.Snapshot)
		round.Err = errors.Join(round.Err, err)
		if !errors.Is(err, plan.ErrNoPlan) {
			limited, cancel := context.WithTimeout(ctx, applyTimeout)
			round.Changes, err = l.host.Apply(limited, round.State)
			cancel()
			if err != nil {
				err = fmt.Errorf("apply the plan: %w", err)
			}
			round.Applied, round.Err = err == nil, errors.Join(round.Err, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turned, l.applied = time.Now(), l.applied || round.Applied
	return round, look.Again
}

// tell logs what changed, and errors when they are others than those told last.
func (l *Loop) tell(round Round, told string) string {
	if len(round.Changes) > 0 {
		l.log.Info("host changed", "count", len(round.Changes), "changes", firstOf(round.Changes))
	}
	text := ""
	if round.Err != nil {
		text = round.Err.Error()
	}
	switch {
	case text == told:
	case text == "":
		l.log.Info("host is as planned again")
	default:
		l.log.Error(round.Err, "host is not as it should be", "applied", round.Applied)
	}
	return text
}

// firstOf keeps log lines readable when a host is set up.
func firstOf(changes []string) []string {
	const enough = 12
	if len(changes) <= enough {
		return changes
	}
	return append(changes[:enough:enough], "...")
}
