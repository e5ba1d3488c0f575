// SPDX-License-Identifier: Apache-2.0

// Package generate makes what another cluster needs to peer with this one: a command with a token, or an invitation. Its proof are
// generate_test.go and invite_test.go of package apiserver.
package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"liqo.io/liqo/internal/action"
	"liqo.io/liqo/internal/action/await"
	"liqo.io/liqo/internal/action/installed"
	"liqo.io/liqo/internal/action/tokens"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/published"
)

// addressTimeout bounds the wait for the address of a load balancer.
const addressTimeout = 30 * time.Second

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

// ForPeer collects what another cluster needs to peer with this one.
func ForPeer(ctx context.Context, c client.WithWatch, namespace string, o tokens.Options, p action.Progress) (PeerCommand, error) {
	if err := o.Validate(); err != nil {
		return PeerCommand{}, err
	}
	identity, err := installed.Identity(ctx, c, namespace)
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
		token.Secret, err = tokens.Shared(ctx, c, namespace)
	} else { // last, as only this changes something
		token.Secret, err = tokens.Issue(ctx, c, namespace, o, time.Now())
	}
	if err != nil {
		return PeerCommand{}, err
	}
	command.Token = token.String()
	return command, nil
}

// clusterFingerprint returns the fingerprint of the key with which this cluster proves itself.
func clusterFingerprint(ctx context.Context, c client.Reader, namespace string) (string, error) {
	keys, err := installed.Keys(ctx, c, namespace)
	if err != nil {
		return "", err
	}
	return keys.Fingerprint(), nil
}

// waitAuthURL reads the authentication URL, and waits for the address of a new load balancer.
func waitAuthURL(ctx context.Context, c client.WithWatch, namespace string, p action.Progress) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, addressTimeout)
	defer cancel()
	var (
		url     string
		waiting bool
	)
	err := await.Follow(ctx, c, &corev1.ServiceList{}, func(services []corev1.Service) (bool, error) {
		var err error
		url, err = installed.AuthURL(ctx, c, namespace, services)
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
			"If this cluster has no load balancers, `liqoctl upgrade --service-type NodePort` publishes a node's address "+
			"instead", namespace, published.Service, addressTimeout)
	}
	return url, err
}
