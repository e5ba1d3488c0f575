// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	sharingapply "liqo.io/liqo/apis/applyconfiguration/sharing/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/invitation"
)

// A provider can invite a consumer to an in-band peering although no administrator has access to both clusters (docs/adr/0022-in-band.md). In the
// provider, the invitation is a ForeignCluster whose tunnel leads to the proxy only. The consumer reaches that proxy from the process of its
// controllers, registers, and exchanges its network as in any peering. As soon as the tunnel between the clusters is up, both go on through it.

func isInvitation(fc *discoveryv1alpha1.ForeignCluster) bool {
	return fc.Labels[labels.Invitation] != ""
}

// readInvitation reads the invitation to an in-band peering, if there is one.
func (r *reconciler) readInvitation(ctx context.Context, s *scope) error {
	if !s.fc.InBand() || s.fc.DeletionTimestamp != nil {
		return nil
	}
	var secret corev1.Secret
	err := r.watched.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: auth.TokenSecretName(s.peer.ClusterID)}, &secret)
	text, found := secret.Data[invitation.SecretKey]
	if err != nil || !found {
		return client.IgnoreNotFound(err)
	}
	parsed, err := invitation.Parse(string(text))
	if err != nil {
		log.FromContext(ctx).Error(err, "invitation not readable; run the command again that the provider printed", "secret", secret.Name)
		return nil
	}
	s.invitation = &parsed
	return nil
}

// reportProxy reports the URL of our proxy to a consumer: in-band, it needs it if no administrator has access to both clusters; out-of-band, to renew its
// identity while it does not reach the authentication service otherwise.
func (r *reconciler) reportProxy(ctx context.Context, s *scope) error {
	url := s.facts.ReportedProxy
	if url == "" {
		return nil
	}
	for i := range s.facts.Copies {
		slice := &s.facts.Copies[i]
		if slice.DeletionTimestamp != nil || slice.Status.ProxyURL == url || slice.Status.Phase == "" {
			continue // without an answer, the defaults of this status would be one
		}
		intent := sharingapply.ResourceSlice(slice.Name, slice.Namespace).WithUID(slice.UID).WithStatus(sharingapply.ResourceSliceStatus().WithProxyURL(url))
		if err := r.own.ApplyStatusTo(ctx, intent, slice); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("report the proxy of this cluster in resource slice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
	}
	return nil
}

const (
	// invitationCheck is how often an open invitation is checked.
	invitationCheck = 15 * time.Second
	// invitationGrace is how long an invitation stays open after the tunnel to the consumer that used it is up, which it needs to change to that.
	invitationGrace = time.Minute
)

// endInvitation deletes an invitation that has expired or was used.
func (r *reconciler) endInvitation(ctx context.Context, s *scope) error {
	if !isInvitation(s.fc) || s.fc.DeletionTimestamp != nil {
		return nil
	}
	left, reason := time.Duration(0), "it has expired"
	if expires, err := time.Parse(time.RFC3339, s.fc.Annotations[labels.InvitationExpires]); err == nil {
		left = expires.Sub(s.now)
	}
	used, err := invitation.UsedSince(ctx, r.watched, r.client, r.options.Namespace, s.fc.Labels[labels.Invitation])
	if err != nil {
		return err
	}
	if !used.IsZero() && used.Add(invitationGrace).Sub(s.now) < left {
		left, reason = used.Add(invitationGrace).Sub(s.now), "it was used"
	}
	if left > 0 {
		s.requeueWithin(min(left, invitationCheck))
		return nil
	}
	if err := r.client.Delete(ctx, s.fc, client.Preconditions{UID: &s.fc.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete invitation %s: %w", s.fc.Name, err)
	}
	log.FromContext(ctx).Info("invitation ended", "foreigncluster", s.fc.Name, "reason", reason)
	return errWaiting // its event triggers the next reconciliation
}
