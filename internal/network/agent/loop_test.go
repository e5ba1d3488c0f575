// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/plan"
)

// memory is a host that remembers what was applied.
type memory struct {
	mu      sync.Mutex
	state   plan.HostState
	applied int
	fails   error
	changed chan struct{}
}

func (m *memory) Apply(_ context.Context, state plan.HostState) (changes []host.Change, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied++
	if m.fails != nil {
		return nil, m.fails
	}
	if m.state.String() != state.String() {
		changes = []host.Change{{Verb: "replace", What: "everything"}}
	}
	m.state = state
	return changes, nil
}

func (m *memory) Changed() <-chan struct{} { return m.changed }

// script is a role that says what the test wants.
type script struct {
	mu     sync.Mutex
	look   Look
	state  plan.HostState
	err    error
	rounds chan Round
}

func (s *script) Look(context.Context, time.Time) Look {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.look
}

func (s *script) Plan(plan.Snapshot) (plan.HostState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.err
}

func (s *script) Done(round Round) { s.rounds <- round }

func (s *script) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func TestLoop(t *testing.T) {
	host := &memory{changed: make(chan struct{})}
	role := &script{rounds: make(chan Round)}
	loop := NewLoop(host, role, logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- loop.Run(ctx) }()
	next := func() Round {
		t.Helper()
		select {
		case round := <-role.rounds:
			return round
		case <-time.After(10 * time.Second):
			t.Fatal("the loop does not turn")
			return Round{}
		}
	}
	one := plan.HostState{Links: []plan.Link{{Name: "one", Kind: plan.VXLAN}}}

	if next(); host.applied != 0 || loop.Ready() {
		t.Error("a host was changed before anything was known")
	}
	role.set(func() { role.look.Known, role.state, role.err = true, one, fmt.Errorf("%w: of a sort", plan.ErrNoPlan) })
	loop.Trigger()
	for i := range 2 { // a round may have begun before
		if round := next(); host.applied != 0 || loop.Ready() || i == 1 && !errors.Is(round.Err, plan.ErrNoPlan) {
			t.Errorf("a host was changed without a plan: %+v", round)
		}
		loop.Trigger()
	}
	partly := errors.New("one peer is refused")
	role.set(func() { role.err = partly })
	loop.Trigger()
	next()
	if round := next(); !round.Applied || !errors.Is(round.Err, partly) || len(host.state.Links) != 1 || !loop.Ready() {
		t.Errorf("what can be planned is applied: %+v", round)
	}

	broken := errors.New("the kernel is out of sorts")
	host.mu.Lock()
	host.fails = broken
	host.mu.Unlock()
	loop.Trigger()
	next()
	if round := next(); round.Applied || !errors.Is(round.Err, broken) || !loop.Ready() {
		t.Errorf("%+v", round)
	}
	host.mu.Lock()
	host.fails, host.state = nil, plan.HostState{}
	host.mu.Unlock()
	next() // a round that was on its way
	before := kubetest.NewStopwatch(t)
	host.changed <- struct{}{} // somebody deleted all of it
	for next(); ; next() {
		host.mu.Lock()
		repaired := len(host.state.Links) == 1
		host.mu.Unlock()
		if repaired {
			break
		}
	}
	if took := before.Took(); took > 900*time.Millisecond {
		t.Errorf("repaired after %v: that was the timer, not the event", took)
	}
	cancel()
	select {
	case <-role.rounds:
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	}
}

// A host on which something changes all the time is looked at, but not all the time.
func TestLoopStandsStorms(t *testing.T) {
	host := &memory{changed: make(chan struct{})}
	role := &script{rounds: make(chan Round, 1000), look: Look{Known: true}}
	loop := NewLoop(host, role, logr.Discard())
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			select {
			case host.changed <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}()
	if err := loop.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if turns := len(role.rounds); turns < 2 || turns > 8 {
		t.Errorf("%d rounds in 0.6 s of events without a pause", turns)
	}
}
