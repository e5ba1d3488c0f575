// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingapply "k8s.io/client-go/applyconfigurations/networking/v1"

	"liqo.io/liqo/apis/labels"
)

// Networks are what this cluster knows when it writes the policies of one peer.
type Networks struct {
	// Peer are the networks under which this cluster reaches the peer.
	Peer []netip.Prefix
	// Others are those of all other peers.
	Others []netip.Prefix
	// Own are the networks of the pods, Services and nodes of this cluster, Services those of Services alone.
	Own, Services []netip.Prefix
}

// dnsPorts are the ports at which name servers listen: OpenShift's at 5353.
var dnsPorts = []int32{53, 5353}

// Policy returns the specification of the NetworkPolicy in the remote namespaces of a peer, nil if there is to be none.
//
// Kubernetes adds up what policies admit, so nothing can be denied that another rule admits. A destination is therefore admitted as a network less
// exceptions. The pods of this cluster are no exception among the sources: several network plugins send the packets of nodes from an address of the pod
// network, and pods of other peers are kept away by their own policy.
func Policy(o Options, clusterID string, networks Networks) *networkingapply.NetworkPolicySpecApplyConfiguration {
	if !o.Enabled {
		return nil
	}
	ours := networkingapply.NetworkPolicyPeer().WithNamespaceSelector(metaapply.LabelSelector().
		WithMatchLabels(map[string]string{labels.RemoteClusterID: clusterID}))
	peering := append(Peers{ours}, blocks(networks.Peer, slices.Concat(metadata, networks.Own))...)
	clients := slices.Concat(peering, blocks(everything, slices.Concat(remapped, except(networks.Others, networks.Peer))), o.Clients)
	servers := slices.Concat(peering, blocks(everything, denied(o, networks)), o.Servers)
	spec := networkingapply.NetworkPolicySpec().WithPodSelector(metaapply.LabelSelector()).
		WithPolicyTypes(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress).
		WithIngress(networkingapply.NetworkPolicyIngressRule().WithFrom(clients...)).
		WithEgress(networkingapply.NetworkPolicyEgressRule().WithTo(servers...))
	// A cache of names on each node answers at the address of the Service itself.
	if dns := append(slices.Clone(o.DNS), blocks(networks.Services, metadata)...); len(dns) > 0 {
		spec.WithEgress(networkingapply.NetworkPolicyEgressRule().WithTo(dns...).WithPorts(ports()...))
	}
	return spec
}

// denied returns what pods of a peer do not reach although public addresses are admitted: private and special networks, those of this cluster and of other
// peers, and those that the administrator adds.
func denied(o Options, networks Networks) []netip.Prefix {
	return slices.Concat(private, o.Denied, public(slices.Concat(networks.Own, networks.Others)))
}

// except returns the networks that do not overlap the kept ones.
func except(networks, kept []netip.Prefix) (all []netip.Prefix) {
	for _, network := range networks {
		if !slices.ContainsFunc(kept, network.Overlaps) {
			all = append(all, network)
		}
	}
	return all
}

// blocks returns the networks without the exceptions.
func blocks(networks, exceptions []netip.Prefix) (all Peers) {
	for _, network := range merged(networks) {
		without, covered := inside(network, exceptions)
		if covered {
			continue
		}
		block := networkingapply.IPBlock().WithCIDR(network.String())
		for _, prefix := range without {
			block.WithExcept(prefix.String())
		}
		all = append(all, networkingapply.NetworkPolicyPeer().WithIPBlock(block))
	}
	return all
}

func ports() (all []*networkingapply.NetworkPolicyPortApplyConfiguration) {
	for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		for _, port := range dnsPorts {
			all = append(all, networkingapply.NetworkPolicyPort().WithProtocol(protocol).WithPort(intstr.FromInt32(port)))
		}
	}
	return all
}

// DefaultClients are the pods of this cluster that do not run for another cluster: ingress controllers, monitoring and the like.
func DefaultClients() Peers {
	return Peers{networkingapply.NetworkPolicyPeer().WithNamespaceSelector(metaapply.LabelSelector().WithMatchExpressions(
		metaapply.LabelSelectorRequirement().WithKey(labels.RemoteClusterID).WithOperator(metav1.LabelSelectorOpDoesNotExist)))}
}

// DefaultDNS are the name servers in pods of this cluster, and the usual address of a cache on each node.
func DefaultDNS() Peers {
	return append(DefaultClients(), networkingapply.NetworkPolicyPeer().WithIPBlock(networkingapply.IPBlock().WithCIDR("169.254.20.10/32")))
}
