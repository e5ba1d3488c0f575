// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/remote"
)

const (
	// identityTimeout is how long reading the Secret may take.
	identityTimeout = 5 * time.Second
	// attemptsPerProbe: one lost packet must not make a node NotReady.
	attemptsPerProbe = 3
	// firstRetry is the first delay before a missing identity is read again: it appears while a peering is being established.
	firstRetry = 100 * time.Millisecond
)

// prober probes the API server of the provider periodically.
type prober struct {
	local    client.Client
	scheme   *runtime.Scheme
	secret   client.ObjectKey
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

	// What follows belongs to the loop of run.
	connection *remote.Connection
	token      string
	// read is when the identity was read; zero if it must be read again.
	read time.Time
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
		before := p.token
		if err := p.identify(ctx); err != nil {
			return unidentified, tidy(err.Error())
		}
		if errors.Is(err, remote.ErrUnauthorized) && p.token == before {
			break // the token is the same, so the answer will be
		}
		if err = p.ask(ctx); err == nil {
			return reachable, ""
		}
		switch {
		case errors.Is(err, remote.ErrUnauthorized):
			p.read = time.Time{} // the token may have been renewed
		case timedOut(err):
			p.connection.Reset() // the connection may be dead, and the next call would wait for it as well
		}
	}
	if time.Since(p.read) > p.interval {
		p.read = time.Time{} // the address of the other cluster may have changed
	}
	return unreachable, plain(err, p.timeout)
}

func (p *prober) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.connection.Probe(ctx)
}

var errNoIdentity = errors.New("this cluster has no identity in the remote cluster; see the conditions of its ForeignCluster")

// identify reads the identity, which the controller manager renews.
func (p *prober) identify(ctx context.Context) error {
	if p.connection != nil && !p.read.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	var secret corev1.Secret
	switch err := p.local.Get(ctx, p.secret, &secret); {
	case err != nil && client.IgnoreNotFound(err) == nil:
		return errNoIdentity
	case err != nil && p.connection != nil:
		return nil // a busy local API server is no fault of the provider
	case err != nil:
		return fmt.Errorf("read the identity in the remote cluster: %w", err)
	}
	identity, err := remote.ParseIdentity(secret.Data)
	if err != nil || identity.Invited {
		return errNoIdentity // a key without a token, or one for the invitation: authentication has not finished
	}
	if p.connection == nil {
		p.connection, err = remote.NewConnection(identity, p.scheme)
	} else {
		_, err = p.connection.Update(identity)
	}
	if err != nil {
		return err
	}
	p.read, p.token = time.Now(), identity.Token
	return nil
}

func timedOut(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// plain returns why a probe failed, in words that do not change while the reason does not: they are written to the node, and for instance
// our source port differs each time. The text may come from the provider, so it is bounded.
func plain(err error, timeout time.Duration) string {
	if timedOut(err) {
		return fmt.Sprintf("no answer within %v", timeout)
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, closed) {
			return "the connection was closed"
		}
	}
	var operation *net.OpError
	if errors.As(err, &operation) {
		if operation.Addr == nil {
			return tidy(operation.Err.Error())
		}
		return tidy(operation.Addr.String() + ": " + operation.Err.Error())
	}
	var request *url.Error
	if errors.As(err, &request) {
		return tidy(request.Err.Error())
	}
	return tidy(err.Error())
}
