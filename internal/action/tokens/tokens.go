// SPDX-License-Identifier: Apache-2.0

// Package tokens issues the tokens with which other clusters peer, and stores those of others. It must not know the commands that
// print or take them. Its proof are generate_test.go and peer_test.go of package apiserver.
package tokens

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	clientretry "k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/peering/auth"
)

// Key is where the Secret of a consumer has the token.
const Key = "token"

// Options are the limits of the token of a peer command, which one cluster may use, unless it is the shared one.
type Options struct {
	// For is the ID or the name of the only cluster that may use it; if empty, the first one that does.
	For string
	// Expires is how long it is valid. Zero means a day.
	Expires time.Duration
	// Shared: it is the token that all clusters may use, without end. It has no other limits.
	Shared bool
}

func (o Options) Validate() error {
	switch {
	case o.Expires < 0:
		return fmt.Errorf("the token cannot be valid for %s", o.Expires)
	case o.Shared && o != Options{Shared: true}:
		return errors.New("the shared token is for all clusters and does not expire: leave out --for and --expires, or --shared")
	}
	return nil
}

// Lifetime is that of an issued token without another limit.
const Lifetime = 24 * time.Hour

// Shared reads the token that every cluster may use.
func Shared(ctx context.Context, c client.Reader, namespace string) (string, error) {
	var secret corev1.Secret
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: auth.SharedTokenSecret}, &secret)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("this cluster has no Secret %s/%s: it has no token that all clusters may use (auth.config.sharedToken); without --shared, the "+
			"command has a token for one cluster",
			namespace, auth.SharedTokenSecret)
	}
	if err != nil {
		return "", fmt.Errorf("read the pre-shared token from Secret %s/%s: %w", namespace, auth.SharedTokenSecret, err)
	}
	token := auth.ParseToken(string(secret.Data[auth.SharedTokenKey]))
	if token.Secret == "" {
		return "", fmt.Errorf("the Secret %s/%s has no key %q; `liqoctl rotate token` writes another token", namespace, auth.SharedTokenSecret, auth.SharedTokenKey)
	}
	return token.Secret, nil
}

// Issue adds a token that one cluster may use, and removes those that have expired.
func Issue(ctx context.Context, c client.Client, namespace string, o Options, now time.Time) (string, error) {
	one := auth.AcceptedToken{Secret: auth.NewSecret(), For: o.For, Once: true, Expires: now.Add(cmp.Or(o.Expires, Lifetime)).UTC().Truncate(time.Second)}
	text, err := json.Marshal(one)
	if err != nil {
		return "", err
	}
	err = ChangeSecret(ctx, c, client.ObjectKey{Namespace: namespace, Name: auth.IssuedTokensSecret}, func(data map[string][]byte) {
		maps.DeleteFunc(data, func(_ string, text []byte) bool {
			var old auth.AcceptedToken
			return json.Unmarshal(text, &old) == nil && !old.Expires.IsZero() && now.After(old.Expires)
		})
		data[auth.TokenID(one.Secret)] = text
	})
	if err != nil {
		return "", fmt.Errorf("store the token: %w", err)
	}
	return one.Secret, ForgetSpent(ctx, c, namespace)
}

// ChangeSecret changes the data of a Secret, and creates it if it does not exist. Another writer causes a second attempt.
func ChangeSecret(ctx context.Context, c client.Client, at client.ObjectKey, change func(map[string][]byte)) error {
	return clientretry.OnError(clientretry.DefaultRetry, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) },
		func() error {
			var secret corev1.Secret
			err := c.Get(ctx, at, &secret)
			missing := apierrors.IsNotFound(err)
			if err != nil && !missing {
				return err
			}
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			change(secret.Data)
			if missing {
				secret.Namespace, secret.Name, secret.Labels = at.Namespace, at.Name, map[string]string{labels.AppPartOf: labels.PartOf}
				return c.Create(ctx, &secret, client.FieldOwner(labels.OwnerCLI))
			}
			return c.Update(ctx, &secret, client.FieldOwner(labels.OwnerCLI))
		})
}

// Held is the Secret of a consumer with the token of a provider.
type Held struct {
	// Name and ClusterID of the provider, and the namespace of Liqo here.
	Name, ClusterID, Namespace string
}

// Store stores what a provider has handed out, the token or what it goes with.
func (o Held) Store(ctx context.Context, c client.Client, what string, content map[string][]byte) error {
	secret := corev1ac.Secret(auth.TokenSecretName(o.ClusterID), o.Namespace).
		WithLabels(map[string]string{labels.ClusterID: o.ClusterID, labels.AuthToken: ""}).
		WithType(corev1.SecretTypeOpaque).
		WithData(content)
	if err := await.Retry(ctx, func(ctx context.Context) error {
		return c.Apply(ctx, secret, client.FieldOwner(labels.OwnerCLI), client.ForceOwnership)
	}); err != nil {
		return fmt.Errorf("store the %s of %q in Secret %s/%s: %w", what, o.Name, o.Namespace, *secret.Name, err)
	}
	return nil
}

// Withdraw deletes the Secret of a peering that failed or was interrupted before it had a ForeignCluster, because no other command or controller would.
// It returns the failure, and what stays. The context may have ended.
func (o Held) Withdraw(ctx context.Context, c client.Client, foreign string, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), await.CallTimeout)
	defer cancel()
	// The Secret is read first, and deleted only as it was then: another command may be writing both.
	var secret corev1.Secret
	err := await.Retry(ctx, func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: auth.TokenSecretName(o.ClusterID)}, &secret)
	})
	if err == nil {
		// A failed write may have reached the API server, and a peering that was there before needs the token.
		err = await.Retry(ctx, func(ctx context.Context) error {
			return c.Get(ctx, client.ObjectKey{Name: foreign}, &discoveryv1alpha1.ForeignCluster{})
		})
		if err == nil {
			return failed
		}
		if apierrors.IsNotFound(err) {
			err = await.Retry(ctx, func(ctx context.Context) error {
				err := c.Delete(ctx, &secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
				if apierrors.IsConflict(err) {
					return nil
				}
				return err
			})
		}
	}
	if client.IgnoreNotFound(err) == nil {
		return failed
	}
	return fmt.Errorf("%w; the token may still be in Secret %s/%s: %w; run the command again, or delete the Secret", failed, o.Namespace,
		auth.TokenSecretName(o.ClusterID), err)
}

// ForgetSpent deletes the records of the use of tokens that do not exist any more.
func ForgetSpent(ctx context.Context, c client.Client, namespace string) error {
	var issued corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: auth.IssuedTokensSecret}, &issued); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the issued tokens: %w", err)
	}
	exists := map[string]bool{}
	for id := range issued.Data {
		exists[auth.SpentName(id)] = true
	}
	var spent corev1.ConfigMapList
	if err := c.List(ctx, &spent, client.InNamespace(namespace), client.MatchingLabels{labels.SpentToken: "true"}); err != nil {
		return fmt.Errorf("list the records of used tokens: %w", err)
	}
	for i := range spent.Items {
		if exists[spent.Items[i].Name] {
			continue
		}
		if err := c.Delete(ctx, &spent.Items[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the record of a token that does not exist any more: %w", err)
		}
	}
	return nil
}
