// SPDX-License-Identifier: Apache-2.0

package pools

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

// Single addresses that this cluster talks to outside of any announced network. If a peer were mapped to a prefix that contains one of them,
// it would get packets for another host. Names are not looked up, because they can change at any time.

// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,resourceNames=kubernetes,verbs=list;watch
// +kubebuilder:rbac:namespace=liqo-tenant,groups="",resources=secrets,verbs=get

const (
	// maxLiterals bounds how many addresses of its gateways a peer can block for others, because the peer chooses them.
	maxLiterals = 32
)

// apiServers returns the addresses of this cluster's API servers.
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

// withLiteral appends a host if it is an IPv4 address and not yet listed.
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

// CarrierLiterals returns the addresses at which gateways with these lanes are dialled.
func CarrierLiterals(name string, lanes []netv1alpha1.Lane) (all []ipam.Use) {
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

// knownAddresses returns the addresses of peers, and the published ones of our own gateways.
func knownAddresses(tunnels []netv1alpha1.TunnelEndpoint, fcs []discoveryv1alpha1.ForeignCluster, services []corev1.Service) (all []ipam.Use) {
	for _, tunnel := range byAge(tunnels) {
		all = append(all, CarrierLiterals("gateway of cluster "+tunnel.Spec.ClusterIdentity.ClusterName, tunnel.Spec.Lanes)...)
		// What a peer shows as the addresses of our pods leads to these pods, as long as it leads to no peer.
		if shown, err := netip.ParsePrefix(tunnel.Spec.LocalNATPodCIDR); err == nil {
			all = append(all, ipam.Use{Name: "pods of this cluster, for cluster " + tunnel.Spec.ClusterIdentity.ClusterName, Network: shown})
		}
	}
	for i := range fcs {
		if fcs[i].Inside() {
			continue // its addresses are in the network that we assigned to it
		}
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

// PeerServers returns the API servers of peers. It reads the Secrets of our identities there one by one, because no cache holds them.
func (b *Reader) PeerServers(ctx context.Context) (all []ipam.Use, err error) {
	peers, err := b.tenancies.All(ctx, b.tenancies.Client)
	if err != nil {
		return nil, err
	}
	for i := range peers {
		if peers[i].FC.Inside() {
			continue // as in knownAddresses
		}
		var secret corev1.Secret
		at := client.ObjectKey{Namespace: peers[i].Namespace, Name: remote.SecretName(peers[i].Peer.ClusterID)}
		switch err := b.live.Get(ctx, at, &secret); {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // no identity, or the tenant is being created or deleted
			continue
		case err != nil:
			return nil, fmt.Errorf("read identity %s: %w", at, err)
		}
		if identity, err := remote.ParseIdentity(secret.Data); err == nil {
			all = withURL(all, "API server of cluster "+peers[i].Peer.ClusterName, identity.APIServerURL)
			all = withURL(all, "proxy of cluster "+peers[i].Peer.ClusterName, identity.ProxyURL)
		}
	}
	return all, nil
}
