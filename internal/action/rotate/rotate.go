// SPDX-License-Identifier: Apache-2.0

// Package rotate replaces what proves a cluster to others: its tokens, and its key. Its proof is rotate_test.go of package apiserver.
package rotate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/action/tokens"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/key"
)

// Token replaces the shared token and withdraws all issued ones. Clusters that are registered do not use them any more.
func Token(ctx context.Context, c client.Client, namespace string) error {
	if _, err := installed.Identity(ctx, c, namespace); err != nil {
		return err
	}
	at := client.ObjectKey{Namespace: namespace, Name: auth.IssuedTokensSecret}
	issued := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}
	if err := c.Delete(ctx, issued); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("withdraw the tokens in Secret %s: %w", at, err)
	}
	if err := tokens.ForgetSpent(ctx, c, namespace); err != nil {
		return err
	}
	at.Name = auth.SharedTokenSecret
	if err := c.Get(ctx, at, &corev1.Secret{}); apierrors.IsNotFound(err) {
		return nil // this cluster has no shared token, and must not get one
	}
	if err := tokens.ChangeSecret(ctx, c, at, func(data map[string][]byte) { data[auth.SharedTokenKey] = []byte(auth.NewSecret()) }); err != nil {
		return fmt.Errorf("replace the shared token: %w", err)
	}
	return nil
}

// rotationInterval is the least time between two rotations. It is the lifetime of the tokens of peers: every peer whose connection lasts has renewed within
// it, and knows the new key.
const rotationInterval = time.Hour

type IdentityOptions struct {
	// Force replaces the keys although peers may not know the present ones yet: those then have to peer again.
	Force bool
	// Timeout bounds the wait for providers to learn the new keys.
	Timeout time.Duration
	// Now is the clock; nil means the system clock.
	Now func() time.Time
}

// Identity replaces the keys that identify this cluster to its peers. The old ones stay beside them, so that peers believe the new ones, until the next
// rotation.
func Identity(ctx context.Context, c client.WithWatch, namespace string, o IdentityOptions, p action.Progress) error {
	if _, err := installed.Identity(ctx, c, namespace); err != nil {
		return err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p.Start("Replacing the keys of this cluster")
	fingerprint, err := replaceKeys(ctx, c, namespace, o)
	if errors.Is(err, ErrReplaced) { // by a command that may have ended before it announced the keys to all providers
		_, announced := announceKey(ctx, c, fingerprint)
		return errors.Join(err, announced)
	}
	if err != nil {
		return err
	}
	p.Done("Keys replaced. The key that identifies this cluster has the fingerprint " + fingerprint)
	p.Info("Clusters that use this one learn it at their next renewal, within half an hour. Peer commands that were printed before do not work any more")

	providers, err := announceKey(ctx, c, fingerprint)
	if err != nil {
		return err
	}
	if len(providers) == 0 {
		return nil
	}
	p.Start(fmt.Sprintf("Waiting for %d providers to learn the new keys", len(providers)))
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	err = await.Follow[corev1.Secret](ctx, c, &corev1.SecretList{}, func(all []corev1.Secret) (bool, error) {
		for i := range all {
			if name := providers[all[i].Labels[labels.ClusterID]]; name != "" && all[i].Annotations[labels.OwnKey] == fingerprint {
				delete(providers, all[i].Labels[labels.ClusterID])
				p.Done(fmt.Sprintf("Cluster %q knows the new keys", name))
			}
		}
		return len(providers) == 0, nil
	}, client.MatchingLabels{labels.LocalIdentity: "true"})
	if errors.Is(err, context.DeadlineExceeded) {
		names := make([]string, 0, len(providers))
		for _, name := range providers {
			names = append(names, name)
		}
		slices.Sort(names)
		p.Warn(fmt.Sprintf("These clusters do not know the new keys yet, and learn them when they answer again: %s. To see why: liqoctl status peer %s",
			strings.Join(names, ", "), names[0]))
		return nil
	}
	return err
}

// ErrReplaced means that the keys were replaced so recently that they must stay.
var ErrReplaced = errors.New("providers that do not know the present keys are asked again to learn them")

// replaceKeys replaces the contents of both Secrets, that with the keys for providers first. One that an interrupted rotation replaced is left as it is. It
// returns the fingerprint of the present key with errReplaced.
func replaceKeys(ctx context.Context, c client.Client, namespace string, o IdentityOptions) (fingerprint string, _ error) {
	var roots, cluster corev1.Secret
	for name, into := range map[string]*corev1.Secret{key.Secret: &roots, clusterkey.Secret: &cluster} {
		err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
		if apierrors.IsNotFound(err) {
			err = errors.New("the Deployment liqo-controller-manager creates it when it starts: see its logs")
		}
		if err != nil {
			return "", fmt.Errorf("read the keys of this cluster from Secret %s/%s: %w", namespace, name, err)
		}
	}
	keys, err := clusterkey.Parse(&cluster)
	if err != nil {
		return "", err
	}
	now := o.Now()
	if next := rotatedAt(&cluster).Add(rotationInterval); now.Before(next) && !o.Force {
		return keys.Fingerprint(), fmt.Errorf("the keys of this cluster were replaced %s ago, and peers that have not renewed since know only those before; "+
			"try again after %s, or use --force: peers that do not know the present keys then have to peer again; "+
			"%w", now.Sub(rotatedAt(&cluster)).Round(time.Second), next.Local().Format(time.TimeOnly), ErrReplaced)
	}
	if interrupted := rotatedAt(&roots).After(rotatedAt(&cluster)); !interrupted {
		next := key.Generate()
		next.Previous = key.Parse(roots.Data).Current
		if err := StoreKeys(ctx, c, &roots, next.Data(), now); err != nil {
			return "", err
		}
	}
	if keys, err = keys.Replace(); err != nil {
		return "", err
	}
	return keys.Fingerprint(), StoreKeys(ctx, c, &cluster, keys.Data(), now)
}

// rotatedAt is when the keys of a Secret were replaced; zero if they never were.
func rotatedAt(secret *corev1.Secret) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, secret.Annotations[labels.RotatedAt]) // a person may have changed it
	return at
}

// StoreKeys replaces the data of a Secret, unless another writer has.
func StoreKeys(ctx context.Context, c client.Client, secret *corev1.Secret, data map[string][]byte, now time.Time) error {
	secret.Data = data
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[labels.RotatedAt] = now.UTC().Format(time.RFC3339Nano)
	if err := c.Update(ctx, secret, client.FieldOwner(labels.OwnerCLI)); err != nil {
		return fmt.Errorf("replace the keys in Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// announceKey has the identity of this cluster renewed in all clusters that it uses. It returns their names by cluster ID.
func announceKey(ctx context.Context, c client.Client, fingerprint string) (map[string]string, error) {
	var all discoveryv1alpha1.ForeignClusterList
	if err := await.Retry(ctx, func(ctx context.Context) error { return c.List(ctx, &all) }); err != nil {
		return nil, fmt.Errorf("list foreign clusters: %w", err)
	}
	var identities corev1.SecretList
	err := await.Retry(ctx, func(ctx context.Context) error {
		return c.List(ctx, &identities, client.MatchingLabels{labels.LocalIdentity: "true"})
	})
	if err != nil {
		return nil, fmt.Errorf("list the identities of this cluster: %w", err)
	}
	providers := map[string]string{}
	for i := range all.Items {
		fc := &all.Items[i]
		if fc.Spec.ClusterIdentity == nil || !slices.ContainsFunc(identities.Items, func(one corev1.Secret) bool {
			return one.Labels[labels.ClusterID] == fc.Spec.ClusterIdentity.ClusterID
		}) {
			continue
		}
		before := fc.DeepCopy()
		if fc.Annotations == nil {
			fc.Annotations = map[string]string{}
		}
		fc.Annotations[labels.OwnKey] = fingerprint
		err := await.Retry(ctx, func(ctx context.Context) error {
			return c.Patch(ctx, fc.DeepCopy(), client.MergeFrom(before), client.FieldOwner(labels.OwnerCLI))
		})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("annotate ForeignCluster %s with the new key: %w", fc.Name, err)
		}
		providers[fc.Spec.ClusterIdentity.ClusterID] = fc.Name
	}
	return providers, nil
}
