// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/hoststate"
	"liqo.io/liqo/internal/network/plan"
)

// memory is a host that remembers what was applied.
type memory struct {
	mu      sync.Mutex
	state   hoststate.State
	applied int
	fails   error
	changed chan struct{}
}

func (m *memory) Apply(_ context.Context, state hoststate.State) (changes []host.Change, err error) {
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

func (m *memory) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *memory) attempts() (count int) {
	m.set(func() { count = m.applied })
	return count
}

func (m *memory) links() (links []hoststate.Link) {
	m.set(func() { links = m.state.Links })
	return links
}

func (m *memory) Changed() <-chan struct{} { return m.changed }

// script is a role whose answers the test sets.
type script struct {
	mu         sync.Mutex
	observed   Observation
	state      hoststate.State
	err        error
	iterations chan Iteration
}

func (s *script) Observe(context.Context, time.Time) Observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed
}

func (s *script) Plan(plan.Snapshot) (hoststate.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.err
}

func (s *script) Done(iteration Iteration) { s.iterations <- iteration }

func (s *script) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// blocked is a host whose kernel does not answer until the test releases it, whatever the deadline.
type blocked struct {
	memory
	release chan struct{}
}

func (b *blocked) Apply(ctx context.Context, state hoststate.State) ([]host.Change, error) {
	<-b.release
	return b.memory.Apply(ctx, state)
}

// TestAlive: a kernel that is slow for minutes does not make the agent count as dead, and one that never answers does.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &blocked{release: make(chan struct{})}
		role := &script{iterations: make(chan Iteration, 1), observed: Observation{Known: true}}
		loop := NewLoop(host, role, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- loop.Run(ctx) }()
		if time.Sleep(4 * time.Minute); !loop.Alive() {
			t.Error("dead after 4 minutes")
		}
		if time.Sleep(2 * time.Minute); loop.Alive() {
			t.Error("alive after 6 minutes without an iteration")
		}
		close(host.release)
		<-role.iterations
		if !loop.Alive() {
			t.Error("dead after an iteration")
		}
		cancel()
		for {
			select {
			case <-role.iterations:
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
				return
			}
		}
	})
}

// TestLoop runs on the clock of a synctest bubble, so the times below are exact.
func TestLoop(t *testing.T) { synctest.Test(t, testLoop) }

func testLoop(t *testing.T) {
	host := &memory{changed: make(chan struct{})}
	role := &script{iterations: make(chan Iteration)}
	loop := NewLoop(host, role, logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- loop.Run(ctx) }()
	next := func() Iteration { return <-role.iterations } // the bubble fails if the loop is stuck
	one := hoststate.State{Links: []hoststate.Link{{Name: "one", Kind: hoststate.VXLAN}}}

	if next(); host.attempts() != 0 || loop.Ready() {
		t.Error("the host was changed before anything was known")
	}
	role.set(func() {
		role.observed.Known, role.state, role.err = true, one, fmt.Errorf("%w: for the test", plan.ErrNoPlan)
	})
	loop.Trigger()
	for i := range 2 { // an iteration may have started before
		if iteration := next(); host.attempts() != 0 || loop.Ready() || i == 1 && !errors.Is(iteration.Err, plan.ErrNoPlan) {
			t.Errorf("the host was changed without a plan: %+v", iteration)
		}
		loop.Trigger()
	}
	partly := errors.New("one peer is refused")
	role.set(func() { role.err = partly })
	loop.Trigger()
	next()
	if iteration := next(); !iteration.Applied || !errors.Is(iteration.Err, partly) || len(host.links()) != 1 || !loop.Ready() {
		t.Errorf("the valid part of the plan is applied: %+v", iteration)
	}
	broken := errors.New("the kernel refuses")
	host.set(func() { host.fails = broken })
	loop.Trigger()
	next()
	if iteration := next(); iteration.Applied || !errors.Is(iteration.Err, broken) || !loop.Ready() {
		t.Errorf("%+v", iteration)
	}

	host.set(func() { host.fails, host.state = nil, hoststate.State{} })
	next() // an iteration that had started before
	synctest.Wait()
	event := time.Now()
	host.changed <- struct{}{} // another program deleted everything
	if iteration := next(); !iteration.Applied || len(host.links()) != 1 || !iteration.At.Equal(event.Add(debounce)) {
		t.Errorf("%v after the event: %+v; want a repair after %v, before the resync", iteration.At.Sub(event), iteration, debounce)
	}
	if iteration := next(); !iteration.At.Equal(event.Add(debounce + resync)) {
		t.Errorf("without an event the next iteration starts %v after the repair, want %v", iteration.At.Sub(event.Add(debounce)), resync)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// On a host that changes all the time, the loop runs once for each time of debounce.
func TestLoopStandsStorms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &memory{changed: make(chan struct{})}
		role := &script{iterations: make(chan Iteration, 1000), observed: Observation{Known: true}}
		loop := NewLoop(host, role, logr.Discard())
		ctx, cancel := context.WithTimeout(t.Context(), 10*debounce)
		defer cancel()
		var storm sync.WaitGroup
		defer storm.Wait()
		storm.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Millisecond) // of the bubble's clock
				select {
				case host.changed <- struct{}{}:
				case <-ctx.Done():
				}
			}
		})
		if err := loop.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if iterations := len(role.iterations); iterations < 9 || iterations > 11 {
			t.Errorf("%d iterations in 10 times of debounce", iterations)
		}
	})
}
