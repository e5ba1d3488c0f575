// SPDX-License-Identifier: Apache-2.0

package action

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientretry "k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/published"
)

// Names of objects of the chart that this package reads.
const (
	identityAppName = "clusterid-configmap"
	tokenKey        = "token"
)

// addressTimeout bounds the wait for the address of a load balancer.
const addressTimeout = 30 * time.Second

// ErrNotInstalled means that an action needs Liqo in this cluster, and it is not installed.
var ErrNotInstalled = errors.New("liqo is not installed")

var errNotServed = fmt.Errorf("%w in this cluster: its API server does not know ForeignClusters; run `liqoctl install`", ErrNotInstalled)

// PeerCommand is what another cluster needs to peer with this one.
type PeerCommand struct {
	ClusterName string `json:"clusterName"`
	ClusterID   string `json:"clusterID"`
	AuthURL     string `json:"authUrl"`
	Token       string `json:"authToken"`
}

// Args are the arguments of liqoctl in the other cluster.
func (c PeerCommand) Args() []string {
	return []string{
		"peer", "out-of-band", c.ClusterName,
		"--auth-url", c.AuthURL, "--cluster-id", c.ClusterID, "--auth-token", c.Token,
	}
}

// TokenOptions are the limits of the token of a peer command, which one cluster may use, unless it is the shared one.
type TokenOptions struct {
	// For is the ID or the name of the only cluster that may use it; if empty, the first one that does.
	For string
	// Expires is how long it is valid. Zero means a day.
	Expires time.Duration
	// Shared: it is the token that all clusters may use, without end. It has no other limits.
	Shared bool
}

// validate returns what is wrong with the options.
func (o TokenOptions) validate() error {
	switch {
	case o.Expires < 0:
		return fmt.Errorf("the token cannot be valid for %s", o.Expires)
	case o.Shared && o != TokenOptions{Shared: true}:
		return errors.New("the shared token is for all clusters and does not expire: leave out --for and --expires, or --shared")
	}
	return nil
}

// tokenLifetime is that of an issued token without another limit.
const tokenLifetime = 24 * time.Hour

// GeneratePeerCommand collects what another cluster needs to peer with this one.
func GeneratePeerCommand(ctx context.Context, c client.WithWatch, namespace string, o TokenOptions, p Progress) (PeerCommand, error) {
	if err := o.validate(); err != nil {
		return PeerCommand{}, err
	}
	identity, err := LocalIdentity(ctx, c, namespace)
	if err != nil {
		return PeerCommand{}, err
	}
	command := PeerCommand{ClusterName: identity.ClusterName, ClusterID: identity.ClusterID}
	var token auth.Token
	if token.Fingerprint, err = clusterFingerprint(ctx, c, namespace); err != nil {
		return PeerCommand{}, err
	}
	if command.AuthURL, err = waitAuthURL(ctx, c, namespace, p); err != nil {
		return PeerCommand{}, err
	}
	if o.Shared {
		token.Secret, err = sharedSecret(ctx, c, namespace)
	} else { // last, as only this changes something
		token.Secret, err = issueToken(ctx, c, namespace, o, time.Now())
	}
	if err != nil {
		return PeerCommand{}, err
	}
	command.Token = token.String()
	return command, nil
}

// sharedSecret reads the token that every cluster may use.
func sharedSecret(ctx context.Context, c client.Reader, namespace string) (string, error) {
	var secret corev1.Secret
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: auth.SharedTokenSecret}, &secret)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("this cluster has no Secret %s/%s: it has no token that all clusters may use (auth.config.sharedToken); without --shared, the command has a token for one cluster",
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

// issueToken adds a token that one cluster may use, and removes those that have expired.
func issueToken(ctx context.Context, c client.Client, namespace string, o TokenOptions, now time.Time) (string, error) {
	one := auth.AcceptedToken{Secret: auth.NewSecret(), For: o.For, Once: true, Expires: now.Add(cmp.Or(o.Expires, tokenLifetime)).UTC().Truncate(time.Second)}
	text, err := json.Marshal(one)
	if err != nil {
		return "", err
	}
	err = changeSecret(ctx, c, client.ObjectKey{Namespace: namespace, Name: auth.IssuedTokensSecret}, func(data map[string][]byte) {
		maps.DeleteFunc(data, func(_ string, text []byte) bool {
			var old auth.AcceptedToken
			return json.Unmarshal(text, &old) == nil && !old.Expires.IsZero() && now.After(old.Expires)
		})
		data[auth.TokenID(one.Secret)] = text
	})
	if err != nil {
		return "", fmt.Errorf("store the token: %w", err)
	}
	return one.Secret, forgetSpent(ctx, c, namespace)
}

// changeSecret changes the data of a Secret, and creates it if it does not exist. Another writer causes a second attempt.
func changeSecret(ctx context.Context, c client.Client, at client.ObjectKey, change func(map[string][]byte)) error {
	return clientretry.OnError(clientretry.DefaultRetry, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
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

// clusterFingerprint returns the fingerprint of the key with which this cluster proves itself.
func clusterFingerprint(ctx context.Context, c client.Reader, namespace string) (string, error) {
	keys, err := clusterKeys(ctx, c, namespace)
	if err != nil {
		return "", err
	}
	return keys.Fingerprint(), nil
}

func clusterKeys(ctx context.Context, c client.Reader, namespace string) (clusterkey.Keys, error) {
	var secret corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterkey.Secret}, &secret); err != nil {
		return clusterkey.Keys{}, fmt.Errorf("read the key of this cluster from Secret %s/%s: %w; the Deployment liqo-controller-manager creates it when it starts: see its logs",
			namespace, clusterkey.Secret, err)
	}
	return clusterkey.Parse(&secret)
}

// LocalIdentity reads the ID and name of this cluster from the ConfigMap of the chart.
func LocalIdentity(ctx context.Context, c client.Reader, namespace string) (discoveryv1alpha1.ClusterIdentity, error) {
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{labels.AppName: identityAppName}); err != nil {
		return discoveryv1alpha1.ClusterIdentity{}, fmt.Errorf("read this cluster's identity in namespace %s: %w", namespace, err)
	}
	if len(list.Items) == 0 {
		return discoveryv1alpha1.ClusterIdentity{}, fmt.Errorf(
			"%w in namespace %s of this cluster: it has no ConfigMap labelled %s=%s; run `liqoctl install`, or name another namespace with --namespace",
			ErrNotInstalled, namespace, labels.AppName, identityAppName)
	}
	data := list.Items[0].Data
	identity := discoveryv1alpha1.ClusterIdentity{ClusterID: data["CLUSTER_ID"], ClusterName: data["CLUSTER_NAME"]}
	if identity.ClusterID == "" || identity.ClusterName == "" {
		return identity, fmt.Errorf("the ConfigMap %s/%s lacks CLUSTER_ID or CLUSTER_NAME; `liqoctl upgrade` restores it", namespace, list.Items[0].Name)
	}
	return identity, nil
}

// waitAuthURL reads the authentication URL, and waits for the address of a new load balancer.
func waitAuthURL(ctx context.Context, c client.WithWatch, namespace string, p Progress) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, addressTimeout)
	defer cancel()
	var (
		url     string
		waiting bool
	)
	err := Follow(ctx, c, &corev1.ServiceList{}, func(services []corev1.Service) (bool, error) {
		var err error
		url, err = AuthURL(ctx, c, namespace, services)
		if errors.Is(err, published.ErrPending) && !waiting {
			waiting = true
			p.Start("Waiting for the address of the Service " + published.Service)
		}
		if errors.Is(err, published.ErrPending) {
			return false, nil
		}
		return true, err
	}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": published.Service})
	if waiting {
		p.Stop()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("the Service %s/%s of type LoadBalancer got no address within %s. "+
			"If this cluster has no load balancers, `liqoctl upgrade --service-type NodePort` publishes a node's address instead", namespace, published.Service, addressTimeout)
	}
	return url, err
}

// AuthURL is the URL at which other clusters reach the authentication service of this one. services holds the Service of
// authentication, if it exists.
func AuthURL(ctx context.Context, c client.Reader, namespace string, services []corev1.Service) (string, error) {
	if len(services) == 0 {
		return "", fmt.Errorf("%w in namespace %s of this cluster: it has no Service %s; run `liqoctl install`, or name another namespace with --namespace",
			ErrNotInstalled, namespace, published.Service)
	}
	return published.URL(ctx, c, c, &services[0])
}

func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}
