// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// identityTimeout is how long reading the Secret may take.
const identityTimeout = 5 * time.Second

// ErrNoIdentity means that there is no Secret with a usable identity, or only that of an invitation, which leads through what only the controller
// manager can dial.
var ErrNoIdentity = errors.New("this cluster has no identity in the remote cluster; see the conditions of its ForeignCluster")

// Stored is the connection of the identity in a Secret of this cluster, which the controller manager renews.
type Stored struct {
	local  client.Client
	scheme *runtime.Scheme
	secret client.ObjectKey

	mu         sync.Mutex
	connection *Connection
	token      string
	read       time.Time // zero: the identity must be read again
}

// NewStored returns the connection to the cluster whose tenant namespace here is namespace. It sends no request.
func NewStored(local client.Client, scheme *runtime.Scheme, namespace, clusterID string) *Stored {
	return &Stored{local: local, scheme: scheme, secret: client.ObjectKey{Namespace: namespace, Name: SecretName(clusterID)}}
}

// Connection returns the connection. It reads the identity if that was read longer ago than maxAge; 0: only after Expire. renewed: the token is another one
// than before. While the local API server does not answer, the last identity stays in use: that is no fault of the other cluster.
func (s *Stored) Connection(ctx context.Context, maxAge time.Duration) (connection *Connection, renewed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connection != nil && !s.read.IsZero() && (maxAge == 0 || time.Since(s.read) < maxAge) {
		return s.connection, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	var secret corev1.Secret
	switch err := s.local.Get(ctx, s.secret, &secret); {
	case err != nil && client.IgnoreNotFound(err) == nil:
		return nil, false, ErrNoIdentity
	case err != nil && s.connection != nil:
		return s.connection, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read the identity in the remote cluster: %w", err)
	}
	identity, err := ParseIdentity(secret.Data)
	if err != nil || identity.Invited {
		return nil, false, ErrNoIdentity // a key without a token, or one for the invitation: authentication has not finished
	}
	if s.connection == nil {
		s.connection, err = NewConnection(identity, s.scheme)
	} else {
		_, err = s.connection.Update(identity)
	}
	if err != nil {
		return nil, false, err
	}
	renewed = s.token != identity.Token
	s.read, s.token = time.Now(), identity.Token
	return s.connection, renewed, nil
}

// Expire makes the next call of Connection read the identity again, if it was read at least that long ago.
func (s *Stored) Expire(least time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.read) >= least {
		s.read = time.Time{}
	}
}
