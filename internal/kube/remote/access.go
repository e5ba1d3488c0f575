// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrUnreachable means that there has been no connection to the other cluster yet.
var ErrUnreachable = errors.New("the remote cluster is unreachable")

// Access is a client of another cluster whose connection comes and goes, and whether that cluster is reachable.
type Access struct {
	newClient func(*Connection) (client.WithWatch, error)

	mu     sync.Mutex
	http   *http.Client
	client atomic.Pointer[client.WithWatch]
	opened chan struct{} // closed while the cluster is reachable
	isOpen bool
	since  time.Time // of isOpen
}

// NewAccess returns the access to a cluster that is not reachable yet. newClient makes a client of a connection; it should share its HTTP client,
// which holds one TCP connection for all, and always sends the current token.
func NewAccess(newClient func(*Connection) (client.WithWatch, error)) *Access {
	return &Access{newClient: newClient, opened: make(chan struct{}), since: time.Now()}
}

// Set records the connection, and whether the cluster is reachable. It returns whether the latter has changed. Without a connection it is not.
func (a *Access) Set(connection *Connection, reachable bool) (changed bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if connection == nil {
		reachable = false
	}
	if reachable {
		// The connection has another HTTP client once the URL or the CA of the cluster has changed.
		if shared := connection.HTTPClient(); a.http != shared {
			made, err := a.newClient(connection)
			if err != nil {
				return false, fmt.Errorf("client of the remote cluster: %w", err)
			}
			a.http = shared
			a.client.Store(&made)
		}
	}
	changed = a.isOpen != reachable
	switch {
	case changed && reachable:
		close(a.opened)
	case changed:
		a.opened = make(chan struct{})
	}
	if changed {
		a.isOpen, a.since = reachable, time.Now()
	}
	return changed, nil
}

func (a *Access) Reachable() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.isOpen
}

// UnreachableFor reports whether the cluster has been unreachable for at least that long.
func (a *Access) UnreachableFor(least time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.isOpen && time.Since(a.since) >= least
}

// WhenReachable returns a channel that is closed as soon as the cluster is reachable, and is closed already if it is.
func (a *Access) WhenReachable() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened
}

// Client returns the client, also while the cluster is unreachable: the request fails then. The error is ErrUnreachable before the first connection.
func (a *Access) Client() (client.WithWatch, error) {
	if made := a.client.Load(); made != nil {
		return *made, nil
	}
	return nil, ErrUnreachable
}

// ClientOrNil returns nil before the first connection.
func (a *Access) ClientOrNil() client.Client {
	if made := a.client.Load(); made != nil {
		return *made
	}
	return nil
}

// WaitForClient waits until the cluster is reachable, and returns the client.
func (a *Access) WaitForClient(ctx context.Context) (client.WithWatch, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-a.WhenReachable():
			return a.Client()
		}
	}
}

// Delete deletes the object with this UID. It is no error if that is gone already.
func (a *Access) Delete(ctx context.Context, object *metav1.PartialObjectMetadata, how metav1.DeletionPropagation) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	target := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}}
	target.SetGroupVersionKind(object.GroupVersionKind())
	err = c.Delete(ctx, target, client.Preconditions{UID: &object.UID}, client.PropagationPolicy(how))
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) {
		return nil // the watch shows what there is now
	}
	return fmt.Errorf("delete %s %s/%s in the remote cluster: %w", object.Kind, object.Namespace, object.Name, err)
}
