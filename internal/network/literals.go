// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/network/ipam"
)

// Addresses that this cluster speaks with, and nobody has told us a network for: a peer that is seen as a network with one of them in it
// would get packets that are for somebody else. Names are not looked up: what they mean changes, and is not ours to choose.

// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,resourceNames=kubernetes,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=secrets,verbs=get

const (
	// apiServerSlice is where the API servers of a cluster note their own addresses.
	apiServerSlice = "kubernetes"
	// maxLiterals is how many addresses of its gateways a peer can keep from others: it chooses them.
	maxLiterals = 32
)

// apiServers are the addresses of this cluster's API server.
func apiServers(ctx context.Context, from client.Reader) (all []ipam.Use, err error) {
	var slices discoveryv1.EndpointSliceList
	if err := from.List(ctx, &slices, client.InNamespace(corev1.NamespaceDefault), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list endpoints of the API server: %w", err)
	}
	for i := range slices.Items {
		for j := range slices.Items[i].Endpoints {
			for _, address := range slices.Items[i].Endpoints[j].Addresses {
				all = withLiteral(all, "address of the API server", address)
			}
		}
	}
	return all, nil
}

// withLiteral adds a host, if it is an IPv4 address that is not there yet.
func withLiteral(all []ipam.Use, name, host string) []ipam.Use {
	address, err := netip.ParseAddr(host)
	if err != nil || !address.Is4() {
		return all
	}
	network := netip.PrefixFrom(address, address.BitLen())
	if slices.ContainsFunc(all, func(use ipam.Use) bool { return use.Network == network }) {
		return all
	}
	return append(all, ipam.Use{Name: name, Network: network})
}

func withURL(all []ipam.Use, name, text string) []ipam.Use {
	if parsed, err := url.Parse(text); err == nil {
		return withLiteral(all, name, parsed.Hostname())
	}
	return all
}

// carrierLiterals are the addresses that gateways with these lanes are dialled at.
func carrierLiterals(name string, lanes []netv1alpha1.Lane) (all []ipam.Use) {
	for i := range lanes {
		for j := range lanes[i].Carriers {
			for _, address := range lanes[i].Carriers[j].Addresses {
				if all = withLiteral(all, name, address); len(all) == maxLiterals {
					return all
				}
			}
		}
	}
	return all
}

// spokenWith are the addresses of peers, and where our own gateways are published.
func spokenWith(tunnels []netv1alpha1.TunnelEndpoint, fcs []discoveryv1alpha1.ForeignCluster, services []corev1.Service) (all []ipam.Use) {
	for _, tunnel := range byAge(tunnels) {
		all = append(all, carrierLiterals("gateway of cluster "+tunnel.Spec.ClusterIdentity.ClusterName, tunnel.Spec.Lanes)...)
	}
	for i := range fcs {
		for _, text := range []string{fcs[i].Spec.ForeignAuthURL, fcs[i].Spec.ForeignProxyURL} {
			all = withURL(all, "foreign cluster "+fcs[i].Name, text)
		}
	}
	for i := range services {
		for _, ingress := range services[i].Status.LoadBalancer.Ingress {
			all = withLiteral(all, "gateway of this cluster", ingress.IP)
		}
		all = withLiteral(all, "gateway of this cluster", services[i].Annotations[labels.OverrideAddress])
	}
	return all
}

// peerServers are the API servers of peers: the Secrets of our identities there are read one by one, they are in no cache.
func (s *shared) peerServers(ctx context.Context) (all []ipam.Use, err error) {
	peers, err := s.tenancies(ctx, s.client)
	if err != nil {
		return nil, err
	}
	for i := range peers {
		var secret corev1.Secret
		at := client.ObjectKey{Namespace: peers[i].namespace, Name: remote.SecretName(peers[i].peer.ClusterID)}
		switch err := s.live.Get(ctx, at, &secret); {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // no identity, or the tenant is just made or ended
			continue
		case err != nil:
			return nil, fmt.Errorf("read identity %s: %w", at, err)
		}
		if identity, err := remote.ParseIdentity(secret.Data); err == nil {
			all = withURL(all, "API server of cluster "+peers[i].peer.ClusterName, identity.APIServerURL)
			all = withURL(all, "proxy of cluster "+peers[i].peer.ClusterName, identity.ProxyURL)
		}
	}
	return all, nil
}
