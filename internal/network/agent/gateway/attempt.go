// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"slices"
	"time"

	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/carrier/transport"
)

// dialPause is the pause between attempts to open a stream. Within one, the next way is dialled when the one before has not answered within dialNext.
const dialPause, dialNext = time.Second, 300 * time.Millisecond

// attempt opens a stream with one peer until it is not wanted any more.
type attempt struct {
	cancel  context.CancelFunc
	targets []transport.Target
}

// want opens a stream in the background, unless there is one.
func (s *streams) want(w way) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.open || len(w.targets) == 0 {
		return
	}
	if before := s.wanted[w.key]; before != nil {
		if slices.EqualFunc(before.targets, w.targets, func(a, b transport.Target) bool { return a.String() == b.String() }) {
			return
		}
		before.cancel() // the peer's gateway has moved
	}
	ctx, cancel := context.WithCancel(context.Background())
	one := &attempt{cancel: cancel, targets: w.targets}
	s.wanted[w.key] = one
	go s.open(ctx, w.key, one)
}

// open dials until a stream is open.
func (s *streams) open(ctx context.Context, key carrier.Key, one *attempt) {
	defer one.cancel()
	for ctx.Err() == nil {
		if !s.race(ctx, key, one.targets) {
			pauseFor(ctx, dialPause)
			continue
		}
		s.mu.Lock()
		if s.wanted[key] == one {
			delete(s.wanted, key)
		}
		s.mu.Unlock()
		s.changed()
		return
	}
}

// race dials all targets, the preferred ones a little earlier, until one answers. The others are then ended.
func (s *streams) race(ctx context.Context, key carrier.Key, targets []transport.Target) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(targets))
	next := time.NewTimer(0)
	defer next.Stop()
	for started, ended := 0, 0; ended < len(targets); {
		due := next.C
		if started == len(targets) {
			due = nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-due:
			target := targets[started]
			go func() {
				err := s.hub.Dial(ctx, key, target)
				s.record(ctx, key, target.Kind, err)
				failed <- err
			}()
			started++
			next.Reset(dialNext)
		case err := <-failed:
			if err == nil {
				return true
			}
			ended++
			next.Reset(0)
		}
	}
	return false
}

// record remembers why a way does not work. Attempts that this end has given up do not count.
func (s *streams) record(ctx context.Context, key carrier.Key, kind transport.Kind, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		delete(s.problems[key], kind)
	case ctx.Err() == nil:
		if s.problems[key] == nil {
			s.problems[key] = map[transport.Kind]string{}
		}
		s.problems[key][kind] = err.Error()
	}
}

func pauseFor(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
