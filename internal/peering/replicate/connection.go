// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/liqo/internal/kube/remote"
)

// State is the state of the connection to a peer.
type State struct {
	// Connected: Connect was called, and Disconnect was not.
	Connected bool
	// Ready: the peer's API server answered the last probe.
	Ready bool
	// Message, for people, is why the connection is not Ready, or why our objects cannot be read although it is.
	Message string
	// Unauthorized: the API server rejects our token.
	Unauthorized bool
	// Since is when Ready last changed.
	Since time.Time
	// CheckedAt is when the last probe ended.
	CheckedAt time.Time
}

// connection is the connection to one peer: it probes, and holds a cache while the peer answers.
type connection struct {
	worker    *worker
	namespace string
	api       *remote.Connection
	life      context.Context
	end       context.CancelFunc
	// now triggers a probe.
	now chan struct{}

	mu        sync.Mutex
	state     State
	moved     bool
	token     string
	readError string // why the peer's objects cannot be read although its API server answers
	open      *peerCache
	closing   sync.WaitGroup
}

func newConnection(w *worker, p Peer, api *remote.Connection) *connection {
	c := &connection{
		worker: w, namespace: p.LocalNamespace, api: api, now: make(chan struct{}, 1), token: p.Identity.Token,
		state: State{Connected: true, Since: time.Now(), Message: "the first probe of the provider's API server is under way"},
	}
	c.life, c.end = context.WithCancel(w.r.life)
	return c
}

// State may be called on nil.
func (c *connection) State() State {
	if c == nil {
		return State{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// cache returns the cache of the peer's objects; nil if there is no connection, the peer is not ready, or the cache is
// not synced. When the cache is synced, all objects are queued.
func (c *connection) cache() *peerCache {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.Ready || c.open == nil || !c.open.allSynced.Load() || c.open.life.Err() != nil {
		return nil
	}
	return c.open
}

// update replaces the identity.
func (c *connection) update(identity remote.Identity) error {
	restarted, err := c.api.Update(identity)
	if err != nil {
		return fmt.Errorf("update the identity in peer %s: %w", c.worker.id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = c.moved || restarted
	if restarted || c.token != identity.Token {
		c.token = identity.Token
		c.probeNow()
	}
	return nil
}

// probeNow triggers the next probe.
func (c *connection) probeNow() {
	select {
	case c.now <- struct{}{}:
	default:
	}
}

// probeAfter triggers a probe after the error of a call, if the error is one of the connection or of the token.
func (c *connection) probeAfter(err error) {
	var answered apierrors.APIStatus
	if errors.As(err, &answered) && !apierrors.IsUnauthorized(err) {
		return
	}
	if c.State().Ready { // else the next probe follows within RetryInterval
		c.probeNow()
	}
}

// run probes until the connection ends.
func (c *connection) run() {
	defer func() {
		c.mu.Lock()
		open := c.open
		c.open = nil
		c.mu.Unlock()
		open.close()
		c.closing.Wait()
		c.api.Reset()
	}()
	for {
		c.recordProbe(c.probe())
		if c.life.Err() != nil {
			return
		}
		c.worker.enqueueAll(c.life, c.namespace, false) // deletions whose deadline may have passed
		wait := c.worker.r.options.ProbeInterval
		if !c.State().Ready {
			wait = c.worker.r.options.RetryInterval
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.now:
			timer.Stop()
		case <-c.life.Done():
			timer.Stop()
			return
		}
	}
}

// probe tries twice before it reports a failure, the second time on a new network connection.
func (c *connection) probe() error {
	err := c.once()
	if err == nil || c.life.Err() != nil {
		return err
	}
	if !errors.Is(err, remote.ErrUnauthorized) {
		c.api.Reset()
	}
	return c.once()
}

func (c *connection) once() error {
	ctx, cancel := context.WithTimeout(c.life, c.worker.r.options.ProbeTimeout)
	defer cancel()
	return c.api.Probe(ctx)
}

// recordProbe updates the state after a probe, and starts a new cache when the peer answers again. The informers of an
// old cache would also recover, but only after a backoff that grew while the peer was away.
func (c *connection) recordProbe(err error) {
	if c.life.Err() != nil {
		return
	}
	state := State{Connected: true, CheckedAt: time.Now(), Ready: err == nil}
	switch {
	case errors.Is(err, remote.ErrUnauthorized):
		state.Unauthorized = true
		state.Message = "the provider's API server does not accept our token (401); a new token is being requested"
	case err != nil:
		state.Message = fmt.Sprintf("the provider's API server at %s does not answer: %s; check that it runs and that this cluster reaches the address",
			c.api.Config().Host, remote.Reason(err, c.worker.r.options.ProbeTimeout))
	}
	c.mu.Lock()
	before := c.state
	if state.Since = before.Since; state.Ready != before.Ready {
		state.Since = state.CheckedAt
	}
	if state.Ready {
		state.Message = c.readError
	}
	c.state = state
	renew := state.Ready && (!before.Ready || c.moved || c.open == nil)
	if c.open != nil && !c.moved {
		if overflowed, retry := c.open.sizes.overflowed(state.CheckedAt); overflowed {
			renew = state.Ready && retry // a peer must not get another cache by not answering for a moment
		}
	}
	old := c.open
	if renew {
		c.moved = false
		c.open = newPeerCache(c)
		c.closing.Go(c.open.run)
	}
	c.mu.Unlock()
	if renew {
		old.close()
	}
	before.CheckedAt = state.CheckedAt
	if before != state {
		c.worker.log.Info("connection to the peer changed", "ready", state.Ready, "unauthorized", state.Unauthorized, "message", state.Message)
		c.worker.r.changes.Notify(c.worker.id)
	}
}

// setReadError records why the peer's objects cannot be read; empty if they can.
func (c *connection) setReadError(readError string) {
	c.mu.Lock()
	changed := c.readError != readError && c.state.Ready
	c.readError = readError
	if c.state.Ready {
		c.state.Message = readError
	}
	c.mu.Unlock()
	if changed {
		c.worker.r.changes.Notify(c.worker.id)
	}
}
