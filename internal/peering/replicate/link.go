// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/liqo/internal/kube/remote"
)

// State is what is known of the link to a peer.
type State struct {
	// Connected: Connect was called, and Disconnect was not.
	Connected bool
	// Ready: the last probe of the API server over there was answered.
	Ready bool
	// Message says for people what was seen, if not Ready, or if it answers and does not let us read our objects.
	Message string
	// Unauthorized: it does not take our token.
	Unauthorized bool
	// Since is when Ready became what it is.
	Since time.Time
	// CheckedAt is when the last probe ended.
	CheckedAt time.Time
}

// link is the connection to one peer: it probes, and keeps a session while the peer answers.
type link struct {
	desk       *desk
	namespace  string
	connection *remote.Connection
	life       context.Context
	end        context.CancelFunc
	// now asks for a probe at once.
	now chan struct{}

	mu      sync.Mutex
	state   State
	moved   bool
	token   string
	trouble string // why objects there cannot be read although the API server answers
	open    *session
	closing sync.WaitGroup
}

func newLink(d *desk, p Peer, connection *remote.Connection) *link {
	l := &link{
		desk: d, namespace: p.LocalNamespace, connection: connection, now: make(chan struct{}, 1), token: p.Identity.Token,
		state: State{Connected: true, Since: time.Now(), Message: "the first probe of the provider's API server is under way"},
	}
	l.life, l.end = context.WithCancel(d.r.life)
	return l
}

// State is safe on a link that is not there.
func (l *link) State() State {
	if l == nil {
		return State{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// session returns what the worker needs to talk to the peer; nil if there is no link, the peer is not ready, or its
// objects are not known yet. When that changes, all objects are looked at.
func (l *link) session() *session {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.state.Ready || l.open == nil || !l.open.filled.Load() {
		return nil
	}
	return l.open
}

// update takes a changed identity over.
func (l *link) update(identity remote.Identity) error {
	restarted, err := l.connection.Update(identity)
	if err != nil {
		return fmt.Errorf("take over the new identity at peer %s: %w", l.desk.id, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved = l.moved || restarted
	if restarted || l.token != identity.Token {
		l.token = identity.Token
		l.ask()
	}
	return nil
}

// ask makes the next probe come at once.
func (l *link) ask() {
	select {
	case l.now <- struct{}{}:
	default:
	}
}

// suspect hears of an error of a call: if it is one of the connection or of the token, a probe tells.
func (l *link) suspect(err error) {
	var answered apierrors.APIStatus
	if errors.As(err, &answered) && !apierrors.IsUnauthorized(err) {
		return
	}
	if l.State().Ready { // else the next probe is near anyway
		l.ask()
	}
}

// run probes until the link ends.
func (l *link) run() {
	defer func() {
		l.mu.Lock()
		open := l.open
		l.open = nil
		l.mu.Unlock()
		open.close()
		l.closing.Wait()
		l.connection.Reset()
	}()
	for {
		l.note(l.probe())
		if l.life.Err() != nil {
			return
		}
		l.desk.look(l.life, l.namespace, false) // what waits for its deadline, or for an answer that will not come
		wait := l.desk.r.options.ProbeInterval
		if !l.State().Ready {
			wait = l.desk.r.options.RetryInterval
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.now:
			timer.Stop()
		case <-l.life.Done():
			timer.Stop()
			return
		}
	}
}

// probe asks twice before it calls the peer dead, the second time on a connection of its own.
func (l *link) probe() error {
	err := l.once()
	if err == nil || l.life.Err() != nil {
		return err
	}
	if !errors.Is(err, remote.ErrUnauthorized) {
		l.connection.Reset()
	}
	return l.once()
}

func (l *link) once() error {
	ctx, cancel := context.WithTimeout(l.life, l.desk.r.options.ProbeTimeout)
	defer cancel()
	return l.connection.Probe(ctx)
}

// note turns the outcome of a probe into the state, and opens a session when the peer has come (back). The caches of
// an old session would find back, too, but only after a pause that grew while the peer was away.
func (l *link) note(err error) {
	if l.life.Err() != nil {
		return
	}
	state := State{Connected: true, CheckedAt: time.Now(), Ready: err == nil}
	switch {
	case errors.Is(err, remote.ErrUnauthorized):
		state.Unauthorized = true
		state.Message = "the provider's API server does not accept our token (401); a new one is asked for"
	case err != nil:
		state.Message = fmt.Sprintf("the provider's API server at %s does not answer: %s; check that it runs and that this cluster reaches the address",
			l.connection.Config().Host, plainly(err, l.desk.r.options.ProbeTimeout))
	}
	l.mu.Lock()
	before := l.state
	if state.Since = before.Since; state.Ready != before.Ready {
		state.Since = state.CheckedAt
	}
	if state.Ready {
		state.Message = l.trouble
	}
	l.state = state
	renew := state.Ready && (!before.Ready || l.moved || l.open == nil)
	old := l.open
	if renew {
		l.moved = false
		l.open = newSession(l)
		l.closing.Go(l.open.run)
	}
	l.mu.Unlock()
	if renew {
		old.close()
	}
	before.CheckedAt = state.CheckedAt
	if before != state {
		l.desk.log.Info("link to the peer changed", "ready", state.Ready, "unauthorized", state.Unauthorized, "message", state.Message)
		l.desk.r.changes.tell(l.desk.id)
	}
}

// complain tells that the peer's objects cannot be read, or, with an empty text, that they can.
func (l *link) complain(trouble string) {
	l.mu.Lock()
	news := l.trouble != trouble && l.state.Ready
	l.trouble = trouble
	if l.state.Ready {
		l.state.Message = trouble
	}
	l.mu.Unlock()
	if news {
		l.desk.r.changes.tell(l.desk.id)
	}
}

// plainly says what went wrong in words that stay the same while it stays wrong: a port number in a message would be
// a new state with each probe, and a write.
func plainly(err error, timeout time.Duration) string {
	var call *url.Error
	if errors.As(err, &call) {
		err = call.Err
	}
	var network *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no answer within %s", timeout)
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %s is not known", dns.Name)
	case errors.As(err, &network):
		inner := network.Err
		var system *os.SyscallError
		if errors.As(inner, &system) {
			inner = system.Err
		}
		return network.Op + ": " + inner.Error()
	}
	return err.Error()
}
