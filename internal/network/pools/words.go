// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"net/netip"
	"slices"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/network/ipam"
	"liqo.io/liqo/internal/network/tenants"
)

// UnmappedValue is the Helm value with the networks of peers that are used as they are.
const UnmappedValue = "networkManager.config.unmappedNetworks"

// Words are what administrators of this cluster wrote about the networks of peers. A network of a peer is used as it is only by such a word: what the peer
// itself claims must not decide which addresses lead to it.
type Words struct {
	// peers are the ForeignClusters by tenant namespace.
	peers map[string]*discoveryv1alpha1.ForeignCluster
	// unmapped are the networks of the value.
	unmapped []netip.Prefix
}

// WordsOf returns them. A namespace of two ForeignClusters has no word.
func (b *Reader) WordsOf(all *Records) Words {
	w := Words{peers: map[string]*discoveryv1alpha1.ForeignCluster{}, unmapped: b.Options.Unmapped}
	for i := range all.FCs {
		fc := &all.FCs[i]
		namespace := fc.Status.TenantNamespace.Local
		if id := fc.Spec.ClusterIdentity; namespace == "" || id == nil || discoveryv1alpha1.OwnerOf(all.FCs, id.ClusterID) != fc {
			continue
		}
		if _, twice := w.peers[namespace]; twice {
			fc = nil
		}
		w.peers[namespace] = fc
	}
	return w
}

// WordsFor returns those about one peer.
func (b *Reader) WordsFor(of *tenants.Tenant) Words {
	return Words{peers: map[string]*discoveryv1alpha1.ForeignCluster{of.Namespace: of.FC}, unmapped: b.Options.Unmapped}
}

// Of returns who wrote a network of the peer with this tenant namespace down; empty if no administrator did. A ForeignCluster lists the network itself, so
// that the peer cannot choose among the addresses of a larger one.
func (w Words) Of(namespace string, network netip.Prefix) string {
	if w.Forces(namespace, network) {
		return fmt.Sprintf("spec.network.forcedCIDRs of ForeignCluster %s", w.peers[namespace].Name)
	}
	if fc := w.peers[namespace]; fc != nil && lists(fc.PodCIDRs(), network) {
		return fmt.Sprintf("spec.network.podCIDRs of ForeignCluster %s", fc.Name)
	}
	for _, one := range w.unmapped {
		if one.Bits() <= network.Bits() && one.Overlaps(network) {
			return fmt.Sprintf("value %s, which lists %s", UnmappedValue, one)
		}
	}
	return ""
}

// Peer returns the ForeignCluster of a tenant namespace; nil if it has none, or several.
func (w Words) Peer(namespace string) *discoveryv1alpha1.ForeignCluster { return w.peers[namespace] }

// Forces reports whether an administrator wants a network to lead to the peer although nodes reach it without the peer.
func (w Words) Forces(namespace string, network netip.Prefix) bool {
	fc := w.peers[namespace]
	return fc != nil && fc.Spec.Network != nil && lists(fc.Spec.Network.ForcedCIDRs, network)
}

// About returns the word about a network of the peer.
func (w Words) About(namespace string, network netip.Prefix) ipam.Word {
	switch {
	case w.Forces(namespace, network):
		return ipam.Forced
	case w.Of(namespace, network) != "":
		return ipam.Written
	default:
		return ipam.NoWord
	}
}

// AgreesTo reports whether an administrator agreed that the peer has this network.
func (w Words) AgreesTo(namespace string, network netip.Prefix) bool {
	fc := w.peers[namespace]
	return w.Of(namespace, network) != "" || fc != nil && fc.Spec.Network != nil && lists(fc.Spec.Network.AcceptedCIDRs, network)
}

func lists(networks []string, network netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(text string) bool {
		listed, err := netip.ParsePrefix(text)
		return err == nil && listed == network
	})
}
