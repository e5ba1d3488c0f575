// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
)

// successorOf returns the current key, signed by the previous one, for peers that know only that; nil for other peers.
func successorOf(used ed25519.PrivateKey, k clusterkey.Keys) *auth.Successor {
	if used.Equal(k.Current) {
		return nil
	}
	s := &auth.Successor{Key: clusterkey.Public(k.Current)}
	s.Signature = ed25519.Sign(used, s.Signed())
	return s
}

// KeySource returns the keys of this cluster.
type KeySource interface {
	ClusterKeys(ctx context.Context) (clusterkey.Keys, error)
}

// keysFor is how long keys that were read are used, so that unauthenticated clients cause few reads.
const keysFor = 10 * time.Second

// SecretKeys reads the keys from their Secret, at most once in ten seconds.
type SecretKeys struct {
	Secrets   corev1client.SecretsGetter
	Namespace string

	mu   sync.Mutex
	keys clusterkey.Keys
	read time.Time
}

var errNoClusterKey = errors.New("the Secret " + clusterkey.Secret +
	" is missing; the controller manager creates it: see the logs of Deployment liqo-controller-manager")

// ClusterKeys returns the keys.
func (s *SecretKeys) ClusterKeys(ctx context.Context) (clusterkey.Keys, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys.Current != nil && time.Since(s.read) < keysFor {
		return s.keys, nil
	}
	secret, err := s.Secrets.Secrets(s.Namespace).Get(ctx, clusterkey.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return clusterkey.Keys{}, errNoClusterKey
	}
	if err != nil {
		return clusterkey.Keys{}, fmt.Errorf("read the cluster key: %w", err)
	}
	keys, err := clusterkey.Parse(secret)
	if err == nil {
		s.keys, s.read = keys, time.Now()
	}
	return keys, err
}
