// SPDX-License-Identifier: Apache-2.0

// Package identity is what this cluster has as a consumer of a provider: a stored identity, what became of the last request for another one, and how
// two ways to the provider are asked at a time. Package foreigncluster decides when. TestEither plays every answer of both ways.
package identity

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/kube/ssa"
)

const (
	// MovedAfter is how long an API server may be silent before we request a new identity, which has its current address.
	MovedAfter = 30 * time.Second
	// RenewalRetry is the least time between two successful renewals.
	RenewalRetry = 2 * time.Minute
)

// Held is our stored identity in a peer.
type Held struct {
	Secret   *corev1.Secret
	Identity remote.Identity
	Complete bool
	// OwnKey is the fingerprint of our key that the peer knows.
	OwnKey string
	// Inside is why it was renewed through the tunnel; empty if it was not.
	Inside string
}

// Outdated reports whether the peer is to learn another key of this cluster at once.
func (h *Held) Outdated(fc *discoveryv1alpha1.ForeignCluster) bool {
	wanted := fc.Annotations[labels.OwnKey]
	return wanted != "" && wanted != h.OwnKey
}

// Read reads our identity in a peer from the API server: no cache holds the Secrets of tenants. ending: the ForeignCluster is deleted.
func Read(ctx context.Context, live client.Reader, namespace, clusterID string, ending bool) (*Held, error) {
	var secret corev1.Secret
	at := client.ObjectKey{Namespace: namespace, Name: remote.SecretName(clusterID)}
	err := live.Get(ctx, at, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return &Held{}, nil
	case apierrors.IsForbidden(err) && ending:
		return &Held{}, nil // our right to read it was removed with the tenant
	case err != nil:
		return nil, fmt.Errorf("read identity %s: %w", at, err)
	}
	held := &Held{Secret: &secret, OwnKey: secret.Annotations[labels.OwnKey], Inside: secret.Annotations[labels.RenewedInside]}
	if held.Identity, err = remote.ParseIdentity(secret.Data); err != nil {
		log.FromContext(ctx).Error(err, "identity not readable, requesting another one", "secret", at.String())
		return held, nil
	}
	held.Complete = true
	return held, nil
}

// Write stores the identity.
func (h *Held) Write(ctx context.Context, own *ssa.Applier, namespace, clusterID string) error {
	notes := map[string]string{labels.OwnKey: h.OwnKey}
	if h.Inside != "" {
		notes[labels.RenewedInside] = h.Inside
	}
	intent := corev1apply.Secret(remote.SecretName(clusterID), namespace).WithData(h.Identity.Data()).WithType(corev1.SecretTypeOpaque).
		WithAnnotations(notes).
		WithLabels(map[string]string{labels.LocalIdentity: labels.True, labels.ClusterID: clusterID, labels.AppPartOf: labels.PartOf})
	return own.ApplyTo(ctx, intent, nil)
}
