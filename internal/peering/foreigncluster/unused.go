// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/peering/reach"
	"liqo.io/liqo/internal/peering/spec"
)

const (
	// unusedDeadline is how long a registered consumer may exist without a request. Later it has to register again.
	unusedDeadline = 15 * time.Minute
	// networkDeadline is the same for its network.
	networkDeadline = time.Minute
)

// forgetNetwork deletes the peer's NetworkConfig here once neither cluster uses the other: the connection that would
// have observed its deletion is closed. A peer that comes back writes it again.
func (r *reconciler) forgetNetwork(ctx context.Context, s *scope) error {
	if s.facts.Outgoing || len(s.facts.Copies) > 0 {
		return nil
	}
	var configs netv1alpha1.NetworkConfigList
	if err := r.client.List(
		ctx, &configs, client.InNamespace(s.namespace), client.MatchingLabels{labels.Replicated: labels.True}, client.UnsafeDisableDeepCopy,
	); err != nil {
		return fmt.Errorf("list network configurations of %s: %w", s.namespace, err)
	}
	for i := range configs.Items {
		config := &configs.Items[i]
		if config.DeletionTimestamp != nil {
			continue
		}
		// It may write its request at any moment, also if it has left long ago and comes back.
		since := spec.UnusedSince(s.fc)
		if config.CreationTimestamp.After(since) {
			since = config.CreationTimestamp.Time
		}
		if left := since.Add(networkDeadline).Sub(s.now); s.facts.Admitted && left > 0 {
			s.requeueWithin(left)
			continue
		}
		if err := r.client.Delete(ctx, config, client.Preconditions{UID: &config.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete network configuration %s/%s: %w", config.Namespace, config.Name, err)
		}
	}
	return nil
}

// ensureUse deletes the ForeignCluster of a peer that registered and has no request: the peer may never have reached our
// API server, or may have left while this controller did not run. Nothing else would delete its tenant.
func (r *reconciler) ensureUse(ctx context.Context, s *scope) error {
	abandoned := s.fc.InBand() && s.fc.Labels[labels.DiscoveryType] == labels.DiscoveryIncoming && !s.facts.Outgoing && !reach.Usable(s.facts.Tunnel)
	if s.fc.DeletionTimestamp != nil || !s.fc.OnlyIncoming() && !abandoned || s.facts.Slice != nil || len(s.facts.Copies) > 0 {
		return nil
	}
	since := spec.UnusedSince(s.fc)
	if abandoned {
		since = spec.WithoutTunnelSince(s.fc, since)
	}
	if left := since.Add(unusedDeadline).Sub(s.now); left > 0 {
		s.requeueWithin(left)
		return nil
	}
	err := r.client.Delete(ctx, s.fc, client.Preconditions{UID: &s.fc.UID, ResourceVersion: &s.fc.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete unused foreign cluster %s: %w", s.fc.Name, err)
	}
	log.FromContext(ctx).Info("peer removed, it requested no resources", "clusterID", s.peer.ClusterID, "for", unusedDeadline.String())
	return nil
}
