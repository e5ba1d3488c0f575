// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

func isInBand(fc *discoveryv1alpha1.ForeignCluster) bool {
	return fc.Spec.PeeringType == discoveryv1alpha1.InBand
}

// waitsForTunnel is why an in-band peer cannot be asked for an identity yet; empty if it can.
func waitsForTunnel(s *scope) string {
	switch {
	case !isInBand(s.fc):
		return ""
	case s.fc.Spec.ForeignProxyURL == "" || s.fc.Spec.ForeignAuthURL == "":
		return "the address of the remote cluster's proxy is not known; `liqoctl peer in-band` sets it"
	case s.facts.tunnel == nil || !meta.IsStatusConditionTrue(s.facts.tunnel.Status.Conditions, netv1alpha1.ConditionUsable):
		return "the tunnel to the remote cluster is not up, and everything goes through it"
	}
	return ""
}

// proxyMapping is the name of the IPMapping through which a peer reaches our proxy.
func proxyMapping(peer discoveryv1alpha1.ClusterIdentity) string {
	return proxy.Service + "-" + peer.UniqueName()
}

// ensureProxy makes the proxy of this cluster reachable for an in-band peer, in our external network.
func (r *fcReconciler) ensureProxy(ctx context.Context, s *scope) error {
	if !isInBand(s.fc) || s.fc.DeletionTimestamp != nil {
		return nil
	}
	var service corev1.Service
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: proxy.Service}, &service); err != nil {
		return fmt.Errorf("read the Service of the proxy, through which in-band peers reach this cluster: %w", err)
	}
	var have netv1alpha1.IPMapping
	err := r.client.Get(ctx, client.ObjectKey{Name: proxyMapping(s.peer)}, &have)
	switch {
	case apierrors.IsNotFound(err):
		return r.applyMapping(ctx, s, service.Spec.ClusterIP, nil)
	case err != nil:
		return fmt.Errorf("read address mapping %s: %w", proxyMapping(s.peer), err)
	case have.DeletionTimestamp != nil:
		return nil // its event triggers the next reconciliation
	case have.Spec.Address != service.Spec.ClusterIP: // the Service was made again, and the address of a mapping cannot change
		return r.deleteMapping(ctx, &have)
	}
	return r.applyMapping(ctx, s, service.Spec.ClusterIP, &have)
}

// applyMapping applies the mapping. Kubernetes deletes it with the ForeignCluster if this controller does not run then.
func (r *fcReconciler) applyMapping(ctx context.Context, s *scope, address string, live client.Object) error {
	intent := netapply.IPMapping(proxyMapping(s.peer)).
		WithLabels(map[string]string{labels.ClusterID: s.peer.ClusterID, labels.AppPartOf: labels.PartOf}).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(discoveryv1alpha1.GroupVersion.String()).WithKind("ForeignCluster").WithName(s.fc.Name).WithUID(s.fc.UID)).
		WithSpec(netapply.IPMappingSpec().WithAddress(address).WithClusterIDs(s.peer.ClusterID).
			WithPorts(netapply.MappingPort().WithProtocol(corev1.ProtocolTCP).WithPort(proxy.Port)))
	return r.own.ApplyTo(ctx, intent, live)
}

// closeProxy takes the proxy away from a peer whose ForeignCluster is deleted.
func (r *fcReconciler) closeProxy(ctx context.Context, s *scope) error {
	var have netv1alpha1.IPMapping
	if !r.options.InternalNetwork {
		return nil
	}
	if err := r.client.Get(ctx, client.ObjectKey{Name: proxyMapping(s.peer)}, &have); err != nil {
		return client.IgnoreNotFound(err)
	}
	return r.deleteMapping(ctx, &have)
}

func (r *fcReconciler) deleteMapping(ctx context.Context, mapping *netv1alpha1.IPMapping) error {
	r.own.Forget(client.ObjectKeyFromObject(mapping))
	if err := r.client.Delete(ctx, mapping, client.Preconditions{UID: &mapping.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete address mapping %s: %w", mapping.Name, err)
	}
	return nil
}

// proxyKeySize is that of the key from which the passes of peers are derived, in bytes.
const proxyKeySize = 32

// proxyKey creates the key of the proxy if there is none.
func (r *fcReconciler) proxyKey(ctx context.Context) error {
	_, err := r.ensureSecret(ctx, proxy.KeySecret, func() (map[string][]byte, error) {
		key := make([]byte, proxyKeySize)
		_, _ = rand.Read(key) // never fails
		return map[string][]byte{proxy.KeyName: key}, nil
	})
	return err
}
