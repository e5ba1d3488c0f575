// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"context"
	"errors"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/kube/remote"
)

const (
	// attemptsPerProbe: one lost packet must not make a node NotReady.
	attemptsPerProbe = 3
	// firstRetry is the first delay before a missing identity is read again: it appears while a peering is being established.
	firstRetry = 100 * time.Millisecond
)

// prober probes the API server of the provider periodically.
type prober struct {
	provider *remote.Stored
	interval time.Duration
	retry    time.Duration
	timeout  time.Duration
	changed  func()
	onProbe  func(*remote.Connection, bool)
	wake     chan struct{}

	mu         sync.Mutex
	state      reach
	message    string
	reportedAt time.Time

	// connection is the last one. It belongs to the loop of run.
	connection *remote.Connection
}

// result of the last probe.
func (p *prober) result() (reach, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.message
}

// probeNow makes run probe at once.
func (p *prober) probeNow() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run probes until ctx ends.
func (p *prober) run(ctx context.Context) {
	early := firstRetry
	for {
		state, message := p.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		p.set(ctx, state, message)
		if p.onProbe != nil {
			p.onProbe(p.connection, state == reachable)
		}
		wait := p.retry
		switch state {
		case reachable:
			wait, early = p.interval, firstRetry
		case unidentified:
			wait = min(early, p.retry)
			early += early / 4
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (p *prober) set(ctx context.Context, state reach, message string) {
	p.mu.Lock()
	stateChanged := p.state != state
	// The message of one fault may differ each second, and each would be written to the node.
	changed := stateChanged || p.message != message && time.Since(p.reportedAt) > p.interval
	if changed {
		p.state, p.message, p.reportedAt = state, message, time.Now()
	}
	p.mu.Unlock()
	if stateChanged {
		log.FromContext(ctx).Info("remote cluster probed", "reachable", state == reachable, "reason", message)
	}
	if changed {
		p.changed()
	}
}

// probe makes up to attemptsPerProbe attempts and returns the result with the last error.
func (p *prober) probe(ctx context.Context) (reach, string) {
	var err error
	for range attemptsPerProbe {
		connection, renewed, unidentifiedBy := p.provider.Connection(ctx, 0)
		if unidentifiedBy != nil {
			return unidentified, printable.Line(unidentifiedBy.Error(), printable.MaxLine)
		}
		p.connection = connection
		if errors.Is(err, remote.ErrUnauthorized) && !renewed {
			break // the token is the same, so the answer will be
		}
		if err = p.ask(ctx); err == nil {
			return reachable, ""
		}
		switch {
		case errors.Is(err, remote.ErrUnauthorized):
			p.provider.Expire(0) // the token may have been renewed
		case remote.TimedOut(err):
			p.connection.Reset() // the connection may be dead, and the next call would wait for it as well
		}
	}
	p.provider.Expire(p.interval) // the address of the other cluster may have changed
	return unreachable, remote.Reason(err, p.timeout)
}

func (p *prober) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.connection.Probe(ctx)
}
