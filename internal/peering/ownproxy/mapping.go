// SPDX-License-Identifier: Apache-2.0

// Package ownproxy makes the proxy of this cluster reachable for a peer, by an address in the external network. It must not know for which peers, nor when.
// Its tests are those of the controller of ForeignClusters.
package ownproxy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netapply "liqo.io/liqo/apis/applyconfiguration/net/v1alpha1"
	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/ssa"
	"liqo.io/liqo/internal/peering/proxy"
)

// Mappings are the IPMappings through which peers reach the proxy.
type Mappings struct {
	Client client.Client
	// Live bypasses the cache, which has Secrets with labels of peers only.
	Live client.Reader
	// Own has the field owner of the mappings.
	Own *ssa.Applier
	// Namespace is the install namespace.
	Namespace string
}

// Name is the name of the IPMapping for a peer.
func Name(peer discoveryv1alpha1.ClusterIdentity) string {
	return proxy.Service + "-" + peer.UniqueName()
}

// Find returns the mapping for a peer, nil if there is none.
func (m Mappings) Find(ctx context.Context, peer discoveryv1alpha1.ClusterIdentity) (*netv1alpha1.IPMapping, error) {
	var have netv1alpha1.IPMapping
	err := m.Client.Get(ctx, client.ObjectKey{Name: Name(peer)}, &have)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read address mapping %s: %w", Name(peer), err)
	}
	if err != nil {
		return nil, nil
	}
	if have.Labels[labels.ClusterID] != peer.ClusterID {
		return nil, fmt.Errorf(
			"address mapping %s is that of cluster %q, and cluster %s needs one of this name; delete it", have.Name, have.Labels[labels.ClusterID],
			peer.ClusterID,
		)
	}
	return &have, nil
}

// Address returns the address of the Service of the proxy.
func (m Mappings) Address(ctx context.Context) (string, error) {
	var service corev1.Service
	if err := m.Live.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: proxy.Service}, &service); err != nil {
		return "", fmt.Errorf("read the Service of the proxy, through which peers reach this cluster: %w", err)
	}
	return service.Spec.ClusterIP, nil
}

// URLs returns the URLs of the proxy for a peer: to all that it lets a peer reach, if it opens, and to the authentication service only. They are empty while
// the peer has no address for it.
func (m Mappings) URLs(ctx context.Context, peer string, opens bool, mapping *netv1alpha1.IPMapping) (everything, renewals string, err error) {
	address := mapping.Status.PeerAddresses[peer]
	if address == "" {
		return "", "", nil
	}
	var key corev1.Secret
	if err := m.Live.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: proxy.KeySecret}, &key); err != nil {
		return "", "", client.IgnoreNotFound(err) // it is created when this process starts
	}
	if opens {
		if everything, err = proxy.URL(key.Data[proxy.KeyName], peer, address); err != nil {
			return "", "", err
		}
	}
	renewals, _ = proxy.AuthURL(key.Data[proxy.KeyName], peer, address) // a peering does not end for want of a second way
	return everything, renewals, nil
}

// Apply applies the mapping for the peer of a ForeignCluster. Kubernetes deletes it with that if this controller does not run then. opens: the peer may reach
// the API server through it. live is the mapping, nil if there is none.
func (m Mappings) Apply(ctx context.Context, fc *discoveryv1alpha1.ForeignCluster, address string, opens bool, live client.Object) error {
	peer := *fc.Spec.ClusterIdentity
	intent := netapply.IPMapping(Name(peer)).
		WithLabels(map[string]string{labels.ClusterID: peer.ClusterID, labels.AppPartOf: labels.PartOf}).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(discoveryv1alpha1.GroupVersion.String()).WithKind("ForeignCluster").WithName(fc.Name).
			WithUID(fc.UID)).
		WithSpec(netapply.IPMappingSpec().WithAddress(address).WithClusterIDs(peer.ClusterID).
			WithPorts(netapply.MappingPort().WithProtocol(corev1.ProtocolTCP).WithPort(proxy.Port)))
	if !opens {
		intent.WithAnnotations(map[string]string{labels.RenewalsOnly: labels.True})
	}
	return m.Own.ApplyTo(ctx, intent, live)
}

// Close takes the proxy away from a peer. A mapping of another peer with the same unique name stays.
func (m Mappings) Close(ctx context.Context, peer discoveryv1alpha1.ClusterIdentity) error {
	var have netv1alpha1.IPMapping
	if err := m.Client.Get(ctx, client.ObjectKey{Name: Name(peer)}, &have); err != nil || have.Labels[labels.ClusterID] != peer.ClusterID {
		return client.IgnoreNotFound(err)
	}
	return m.Delete(ctx, &have)
}

// Delete deletes a mapping.
func (m Mappings) Delete(ctx context.Context, mapping *netv1alpha1.IPMapping) error {
	m.Own.Forget(client.ObjectKeyFromObject(mapping))
	if err := m.Client.Delete(ctx, mapping, client.Preconditions{UID: &mapping.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete address mapping %s: %w", mapping.Name, err)
	}
	return nil
}
