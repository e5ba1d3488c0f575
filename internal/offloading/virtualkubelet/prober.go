// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/internal/kube/remote"
)

// identityTimeout is how long reading the Secret may take.
const identityTimeout = 5 * time.Second

// attemptsPerProbe: one lost packet does not take a node away.
const attemptsPerProbe = 3

// prober asks the provider's API server from time to time whether it is alive.
type prober struct {
	local    client.Client
	scheme   *runtime.Scheme
	secret   client.ObjectKey
	interval time.Duration
	retry    time.Duration
	timeout  time.Duration
	changed  func()

	mu      sync.Mutex
	state   reach
	message string

	connection *remote.Connection
	wake       chan struct{}
}

// result of the last probe.
func (p *prober) result() (reach, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.message
}

// soon asks for a probe now.
func (p *prober) soon() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run probes until ctx ends.
func (p *prober) run(ctx context.Context) {
	for {
		wait := p.interval
		if err := p.probe(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			wait = p.retry
			p.set(ctx, unreachable, err.Error())
		} else {
			p.set(ctx, reachable, "")
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// errNoIdentity says that there is nothing to probe with yet.
var errNoIdentity = errors.New("this cluster holds no identity in the remote one yet")

func (p *prober) set(ctx context.Context, state reach, message string) {
	p.mu.Lock()
	if state == unreachable && p.state == reachUnknown && message == errNoIdentity.Error() {
		p.mu.Unlock()
		return // not asked is not the same as silent
	}
	changed := p.state != state || p.message != message
	news := p.state != state
	p.state, p.message = state, message
	p.mu.Unlock()
	if news {
		log.FromContext(ctx).Info("remote cluster probed", "reachable", state == reachable, "reason", message)
	}
	if changed {
		p.changed()
	}
}

func (p *prober) probe(ctx context.Context) (err error) {
	for range attemptsPerProbe {
		if p.connection == nil {
			if err := p.connect(ctx); err != nil {
				return err
			}
		}
		if err = p.ask(ctx); err == nil || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, remote.ErrUnauthorized) {
			p.connection = nil // the token may have been renewed: read it again
		}
	}
	return err
}

func (p *prober) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	err := p.connection.Probe(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v", p.timeout)
	}
	return err
}

// connect reads the identity, which the controller manager renews.
func (p *prober) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	var secret corev1.Secret
	if err := p.local.Get(ctx, p.secret, &secret); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return errNoIdentity
		}
		return fmt.Errorf("read the identity in the remote cluster: %w", err)
	}
	identity, err := remote.ParseIdentity(secret.Data)
	if err != nil {
		return errNoIdentity // a key without a token: first contact is under way
	}
	if p.connection, err = remote.NewConnection(identity, p.scheme); err != nil {
		return err
	}
	return nil
}
