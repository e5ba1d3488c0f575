// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"crypto/ed25519"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/key"
)

// pinProvider stores the fingerprint of the provider's key: after first contact, and after a rotation.
func (r *reconciler) pinProvider(ctx context.Context, s *scope, grant auth.Grant) error {
	if pinned := clusterkey.Fingerprint(grant.ProviderKey); s.fc.Spec.ClusterKey != pinned {
		before := s.fc.DeepCopy()
		s.fc.Spec.ClusterKey = pinned
		if err := r.patch(ctx, s, before); err != nil {
			return err
		}
		log.FromContext(ctx).Info("key of the provider pinned", "clusterID", s.peer.ClusterID, "fingerprint", pinned, "before", before.Spec.ClusterKey)
	}
	return nil
}

// deleteToken deletes our copy of the provider's token once the provider has answered our request: from now on, our key proves this cluster. Until
// then the provider may remove us as an unused peer, and first contact has to be made again.
func (r *reconciler) deleteToken(ctx context.Context, s *scope) error {
	var token corev1.Secret
	if err := r.watched.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: auth.TokenSecretName(s.peer.ClusterID)}, &token); err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := r.client.Delete(ctx, &token, client.Preconditions{UID: &token.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the token of %s, which is not needed any more: %w", s.peer.ClusterID, err)
	}
	r.ways.Close(s.peer.ClusterID)
	return nil
}

// ensureSecret returns a Secret of the install namespace, and creates it with the data of generate if there is none. It is not cached: calls are
// rare, and an administrator may replace it.
func (r *reconciler) ensureSecret(ctx context.Context, name string, generate func() (map[string][]byte, error)) (*corev1.Secret, error) {
	var secret corev1.Secret
	at := client.ObjectKey{Namespace: r.options.Namespace, Name: name}
	err := r.live.Get(ctx, at, &secret)
	if apierrors.IsNotFound(err) {
		data, generateErr := generate()
		if generateErr != nil {
			return nil, generateErr
		}
		secret = corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Labels: map[string]string{labels.AppPartOf: labels.PartOf}},
			Data:       data,
		}
		if err = r.client.Create(ctx, &secret, client.FieldOwner(labels.OwnerForeignCluster)); apierrors.IsAlreadyExists(err) {
			err = r.live.Get(ctx, at, &secret)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read or create Secret %s: %w", at, err)
	}
	return &secret, nil
}

// clusterKeys returns the keys that identify this cluster to its peers, and creates one if there is none.
func (r *reconciler) clusterKeys(ctx context.Context) (clusterkey.Keys, error) {
	secret, err := r.ensureSecret(ctx, clusterkey.Secret, func() (map[string][]byte, error) {
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

// ownKeys are the keys with which this cluster authenticates to one provider.
type ownKeys struct {
	// key is for this provider, cluster for all peers.
	key, cluster ed25519.PrivateKey
	// previousKey and previousCluster are what they replaced; nil if they replaced none.
	previousKey, previousCluster ed25519.PrivateKey
}

// fingerprint identifies the present keys. Both are replaced together, that for the provider first.
func (k ownKeys) fingerprint() string { return clusterkey.Fingerprint(clusterkey.Public(k.cluster)) }

// previous are the keys by which the provider may know this cluster.
func (k ownKeys) previous() (keys []ed25519.PrivateKey) {
	for _, one := range []ed25519.PrivateKey{k.previousKey, k.previousCluster} {
		if one != nil {
			keys = append(keys, one)
		}
	}
	return keys
}

// ownKeys returns the keys for one provider. The cluster key is read first, because it is replaced last: if it is the new one, the other is, too.
func (r *reconciler) ownKeys(ctx context.Context, providerID string) (ownKeys, error) {
	cluster, err := r.clusterKeys(ctx)
	if err != nil {
		return ownKeys{}, err
	}
	roots, err := r.roots(ctx)
	if err != nil {
		return ownKeys{}, err
	}
	keys := ownKeys{cluster: cluster.Current, previousCluster: cluster.Previous}
	if keys.key, err = key.Derive(roots.Current, providerID); err == nil && roots.Previous != nil {
		keys.previousKey, err = key.Derive(roots.Previous, providerID)
	}
	if err != nil {
		return ownKeys{}, fmt.Errorf("read Secret %s/%s: %w; delete it to have a new one created, then unpeer this cluster in all its providers, which know the old key",
			r.options.Namespace, key.Secret, err)
	}
	return keys, nil
}

// sharedToken creates the token that every cluster may use for first contact, if there is none.
func (r *reconciler) sharedToken(ctx context.Context) error {
	_, err := r.ensureSecret(ctx, auth.SharedTokenSecret, func() (map[string][]byte, error) {
		return map[string][]byte{auth.SharedTokenKey: []byte(auth.NewSecret())}, nil
	})
	return err
}

// roots returns the secrets from which the keys are derived, and creates one if there is none.
func (r *reconciler) roots(ctx context.Context) (key.Roots, error) {
	secret, err := r.ensureSecret(ctx, key.Secret, func() (map[string][]byte, error) { return key.Generate().Data(), nil })
	if err != nil {
		return key.Roots{}, err
	}
	return key.Parse(secret.Data), nil
}
