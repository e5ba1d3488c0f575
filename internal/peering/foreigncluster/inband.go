// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netapply "liqo.io/liqo/apis/applyconfiguration/net/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/peering/proxy"
)

// In an in-band peering, the clusters reach each other through their tunnel only. `liqoctl peer in-band` pins the key of each cluster in the other one and
// exchanges their networks. The rest of a peering then follows, through the proxies of the two clusters (docs/adr/0022-in-band.md).

// proxyMapping is the name of the IPMapping through which a peer reaches our proxy.
func proxyMapping(peer discoveryv1alpha1.ClusterIdentity) string {
	return proxy.Service + "-" + peer.UniqueName()
}

// ensureProxy makes the proxy of this cluster reachable for a peer, in our external network: while it is to be open for that peer, and as long as the peer
// uses this cluster.
func (r *reconciler) ensureProxy(ctx context.Context, s *scope) error {
	if !r.options.InternalNetwork || s.fc.DeletionTimestamp != nil {
		return nil
	}
	var have netv1alpha1.IPMapping
	err := r.client.Get(ctx, client.ObjectKey{Name: proxyMapping(s.peer)}, &have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read address mapping %s: %w", proxyMapping(s.peer), err)
	}
	found := err == nil
	if found && have.Labels[labels.ClusterID] != s.peer.ClusterID {
		return fmt.Errorf("address mapping %s is that of cluster %q, and cluster %s needs one of this name; delete it", have.Name, have.Labels[labels.ClusterID], s.peer.ClusterID)
	}
	opens, err := r.opensProxy(ctx, s)
	if err != nil {
		return err
	}
	uses := found && len(s.facts.Copies) > 0 && s.facts.Incoming.Keeps() // a request that is refused may stay as long as the peer likes
	opens = opens || uses && have.Annotations[labels.RenewalsOnly] == "" // what works stays
	switch wanted := opens || s.renewsInside() || uses; {
	case found && have.DeletionTimestamp != nil, !found && !wanted:
		return nil // the event of its removal triggers the next reconciliation
	case !wanted:
		return r.deleteMapping(ctx, &have)
	}
	var service corev1.Service
	err = r.live.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: proxy.Service}, &service)
	switch {
	case apierrors.IsNotFound(err) && (!s.fc.InBand() || !s.facts.Outgoing):
		return nil // a peering can end without it
	case err != nil:
		return fmt.Errorf("read the Service of the proxy, through which peers reach this cluster: %w", err)
	case !found:
		return r.applyMapping(ctx, s, service.Spec.ClusterIP, opens, nil)
	case have.Spec.Address != service.Spec.ClusterIP: // the Service was made again, and the address of a mapping cannot change
		return r.deleteMapping(ctx, &have)
	}
	if err := r.ownProxyURLs(ctx, s, &have, opens); err != nil {
		return err
	}
	if err := r.applyMapping(ctx, s, service.Spec.ClusterIP, opens, &have); err != nil {
		return err
	}
	return r.reportProxy(ctx, s)
}

// ownProxyURLs finds the URLs of our proxy for the peer; there are none while the peer has no address for it. opens: the peer may reach the API server
// through it.
func (r *reconciler) ownProxyURLs(ctx context.Context, s *scope, mapping *netv1alpha1.IPMapping, opens bool) error {
	address := mapping.Status.PeerAddresses[s.peer.ClusterID]
	if address == "" {
		return nil
	}
	var key corev1.Secret // the cache has those with labels of peers only
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: proxy.KeySecret}, &key); err != nil {
		return client.IgnoreNotFound(err) // it is created when this process starts
	}
	if opens {
		var err error
		if s.facts.ProxyURL, err = proxy.URL(key.Data[proxy.KeyName], s.peer.ClusterID, address); err != nil {
			return err
		}
	}
	if s.fc.InBand() {
		s.facts.ReportedProxy = s.facts.ProxyURL
	} else if s.renewsInside() {
		s.facts.ReportedProxy, _ = proxy.AuthURL(key.Data[proxy.KeyName], s.peer.ClusterID, address) // a peering does not end for want of a second way
	}
	return nil
}

// applyMapping applies the mapping. Kubernetes deletes it with the ForeignCluster if this controller does not run then.
func (r *reconciler) applyMapping(ctx context.Context, s *scope, address string, opens bool, live client.Object) error {
	intent := netapply.IPMapping(proxyMapping(s.peer)).
		WithLabels(map[string]string{labels.ClusterID: s.peer.ClusterID, labels.AppPartOf: labels.PartOf}).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(discoveryv1alpha1.GroupVersion.String()).WithKind("ForeignCluster").WithName(s.fc.Name).WithUID(s.fc.UID)).
		WithSpec(netapply.IPMappingSpec().WithAddress(address).WithClusterIDs(s.peer.ClusterID).
			WithPorts(netapply.MappingPort().WithProtocol(corev1.ProtocolTCP).WithPort(proxy.Port)))
	if !opens {
		intent.WithAnnotations(map[string]string{labels.RenewalsOnly: labels.True})
	}
	return r.own.ApplyTo(ctx, intent, live)
}

// closeProxy takes the proxy away from a peer whose ForeignCluster is deleted.
func (r *reconciler) closeProxy(ctx context.Context, s *scope) error {
	var have netv1alpha1.IPMapping
	if !r.options.InternalNetwork {
		return nil
	}
	if err := r.client.Get(ctx, client.ObjectKey{Name: proxyMapping(s.peer)}, &have); err != nil {
		return client.IgnoreNotFound(err)
	}
	if have.Labels[labels.ClusterID] != s.peer.ClusterID {
		return nil // another peer has the same unique name
	}
	return r.deleteMapping(ctx, &have)
}

func (r *reconciler) deleteMapping(ctx context.Context, mapping *netv1alpha1.IPMapping) error {
	r.own.Forget(client.ObjectKeyFromObject(mapping))
	if err := r.client.Delete(ctx, mapping, client.Preconditions{UID: &mapping.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete address mapping %s: %w", mapping.Name, err)
	}
	return nil
}
