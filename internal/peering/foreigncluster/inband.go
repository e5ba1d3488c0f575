// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"liqo.io/liqo/apis/labels"
)

// In an in-band peering, the clusters reach each other through their tunnel only. `liqoctl peer in-band` pins the key of each cluster in the other one and
// exchanges their networks. The rest of a peering then follows, through the proxies of the two clusters (docs/adr/0022-in-band.md).

// ensureProxy makes the proxy of this cluster reachable for a peer, in our external network: while it is to be open for that peer, and as long as the peer
// uses this cluster.
func (r *reconciler) ensureProxy(ctx context.Context, s *scope) error {
	if !r.options.InternalNetwork || s.fc.DeletionTimestamp != nil {
		return nil
	}
	have, err := r.proxies.Find(ctx, s.peer)
	if err != nil {
		return err
	}
	opens, err := r.opensProxy(ctx, s)
	if err != nil {
		return err
	}
	uses := have != nil && len(s.facts.Copies) > 0 && s.facts.Incoming.Keeps() // a request that is refused may stay as long as the peer likes
	opens = opens || uses && have.Annotations[labels.RenewalsOnly] == ""       // what works stays
	switch wanted := opens || s.renewsInside() || uses; {
	case have != nil && have.DeletionTimestamp != nil, have == nil && !wanted:
		return nil // the event of its removal triggers the next reconciliation
	case !wanted:
		return r.proxies.Delete(ctx, have)
	}
	address, err := r.proxies.Address(ctx)
	switch {
	case apierrors.IsNotFound(err) && (!s.fc.InBand() || !s.facts.Outgoing):
		return nil // a peering can end without it
	case err != nil:
		return err
	case have == nil:
		return r.proxies.Apply(ctx, s.fc, address, opens, nil)
	case have.Spec.Address != address: // the Service was made again, and the address of a mapping cannot change
		return r.proxies.Delete(ctx, have)
	}
	everything, renewals, err := r.proxies.URLs(ctx, s.peer.ClusterID, opens, have)
	if err != nil {
		return err
	}
	s.facts.ProxyURL = everything
	if s.fc.InBand() {
		s.facts.ReportedProxy = s.facts.ProxyURL
	} else if s.renewsInside() {
		s.facts.ReportedProxy = renewals
	}
	if err := r.proxies.Apply(ctx, s.fc, address, opens, have); err != nil {
		return err
	}
	return r.reportProxy(ctx, s)
}
