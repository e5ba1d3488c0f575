// SPDX-License-Identifier: Apache-2.0

// Package ownkeys has the keys and tokens of this cluster: Secrets of the install namespace, created when they are first needed. It must not know a
// peer but its ID. TestOwnKeys, in package foreigncluster, shows which of them a provider gets before and after a rotation.
package ownkeys

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/key"
	"liqo.io/liqo/internal/peering/proxy"
)

// Store reads and creates the Secrets.
type Store struct {
	Client client.Client
	// Live bypasses the cache, which has no Secrets but those with labels of peers.
	Live client.Reader
	// Namespace is the install namespace.
	Namespace string
}

// ensure returns a Secret of the install namespace, and creates it with the data of generate if there is none. It is not cached: calls are
// rare, and an administrator may replace it.
func (s Store) ensure(ctx context.Context, name string, generate func() (map[string][]byte, error)) (*corev1.Secret, error) {
	var secret corev1.Secret
	at := client.ObjectKey{Namespace: s.Namespace, Name: name}
	err := s.Live.Get(ctx, at, &secret)
	if apierrors.IsNotFound(err) {
		data, generateErr := generate()
		if generateErr != nil {
			return nil, generateErr
		}
		secret = corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Labels: map[string]string{labels.AppPartOf: labels.PartOf}},
			Data:       data,
		}
		if err = s.Client.Create(ctx, &secret, client.FieldOwner(labels.OwnerForeignCluster)); apierrors.IsAlreadyExists(err) {
			err = s.Live.Get(ctx, at, &secret)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read or create Secret %s: %w", at, err)
	}
	return &secret, nil
}

// Cluster returns the keys that identify this cluster to its peers, and creates one if there is none.
func (s Store) Cluster(ctx context.Context) (clusterkey.Keys, error) {
	secret, err := s.ensure(ctx, clusterkey.Secret, func() (map[string][]byte, error) {
		made, err := clusterkey.Generate()
		if err != nil {
			return nil, err
		}
		return made.Data(), nil
	})
	if err != nil {
		return clusterkey.Keys{}, err
	}
	return clusterkey.Parse(secret)
}

// Keys are the keys with which this cluster authenticates to one provider.
type Keys struct {
	// Key is for this provider, Cluster for all peers.
	Key, Cluster ed25519.PrivateKey
	// PreviousKey and PreviousCluster are what they replaced; nil if they replaced none.
	PreviousKey, PreviousCluster ed25519.PrivateKey
}

// Fingerprint identifies the present keys. Both are replaced together, that for the provider first.
func (k Keys) Fingerprint() string { return clusterkey.Fingerprint(clusterkey.Public(k.Cluster)) }

// Previous are the keys by which the provider may know this cluster.
func (k Keys) Previous() (keys []ed25519.PrivateKey) {
	for _, one := range []ed25519.PrivateKey{k.PreviousKey, k.PreviousCluster} {
		if one != nil {
			keys = append(keys, one)
		}
	}
	return keys
}

// For returns the keys for one provider. The cluster key is read first, because it is replaced last: if it is the new one, the other is, too.
func (s Store) For(ctx context.Context, providerID string) (Keys, error) {
	cluster, err := s.Cluster(ctx)
	if err != nil {
		return Keys{}, err
	}
	roots, err := s.Roots(ctx)
	if err != nil {
		return Keys{}, err
	}
	keys := Keys{Cluster: cluster.Current, PreviousCluster: cluster.Previous}
	if keys.Key, err = key.Derive(roots.Current, providerID); err == nil && roots.Previous != nil {
		keys.PreviousKey, err = key.Derive(roots.Previous, providerID)
	}
	if err != nil {
		return Keys{}, fmt.Errorf("read Secret %s/%s: %w; delete it to have a new one created, then unpeer this cluster in all its providers, which know the old key",
			s.Namespace, key.Secret, err)
	}
	return keys, nil
}

// SharedToken creates the token that every cluster may use for first contact, if there is none.
func (s Store) SharedToken(ctx context.Context) error {
	_, err := s.ensure(ctx, auth.SharedTokenSecret, func() (map[string][]byte, error) {
		return map[string][]byte{auth.SharedTokenKey: []byte(auth.NewSecret())}, nil
	})
	return err
}

// Roots returns the secrets from which the keys are derived, and creates one if there is none.
func (s Store) Roots(ctx context.Context) (key.Roots, error) {
	secret, err := s.ensure(ctx, key.Secret, func() (map[string][]byte, error) { return key.Generate().Data(), nil })
	if err != nil {
		return key.Roots{}, err
	}
	return key.Parse(secret.Data), nil
}

// proxyKeySize is that of the key from which the passes of peers are derived, in bytes.
const proxyKeySize = 32

// Proxy creates the key of the proxy if there is none.
func (s Store) Proxy(ctx context.Context) error {
	_, err := s.ensure(ctx, proxy.KeySecret, func() (map[string][]byte, error) {
		key := make([]byte, proxyKeySize)
		_, _ = rand.Read(key) // never fails
		return map[string][]byte{proxy.KeyName: key}, nil
	})
	return err
}
