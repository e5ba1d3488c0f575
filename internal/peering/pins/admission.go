// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"fmt"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
)

// Limits bound how many clusters may register. Zero means no limit.
type Limits struct {
	// Total is of all clusters, PerToken of those that made first contact with the same token.
	Total, PerToken int
}

// registrations are the clusters that are registered, as far as the limits need to know.
type registrations struct{ total, withToken int }

// admissionRefusal returns why a cluster that made first contact is not admitted, for its administrator; empty if it is. fc is the ForeignCluster of its
// ID, nil if there is none; registered are the other clusters.
func admissionRefusal(pin *auth.Pin, fc *discoveryv1alpha1.ForeignCluster, registered registrations, limits Limits) string {
	switch {
	// Cluster IDs are public. So a stolen token would suffice to register under the ID of a cluster that we use, and to get its rights and its part of
	// the tunnel. Only that cluster can sign with the key that it has as our provider.
	case fc != nil && fc.Spec.ClusterKey != "" && fc.Spec.ClusterKey != clusterkey.Fingerprint(pin.ClusterKey):
		return fmt.Sprintf("this cluster uses %s already and knows it by another key, with the fingerprint %s; if it has a new key, "+
			"an administrator of this cluster peers with it again, using the output of `liqoctl generate peer-command` there", pin.Cluster.ClusterID, fc.Spec.ClusterKey)
	case limits.Total > 0 && registered.total >= limits.Total:
		return fmt.Sprintf(
			"this cluster has %d peers, and admits no more than %d; an administrator raises auth.config.maxPeers, or unpeers another cluster",
			registered.total, limits.Total,
		)
	case limits.PerToken > 0 && pin.TokenID != "" && registered.withToken >= limits.PerToken:
		return fmt.Sprintf("%d clusters have registered with this token, and no more than %d may; an administrator raises "+
			"auth.config.maxPeersPerToken, or issues another token with `liqoctl generate peer-command --for %s`",
			registered.withToken, limits.PerToken, pin.Cluster.ClusterName)
	}
	return ""
}

const renameRemedy = "an administrator of that cluster gives it another name, or another ID, and peers again"

// nameRefusal returns why a cluster cannot have its name here, for its administrator; empty if it can. Names of objects contain the unique name, so two
// clusters with the same one would have each other's. A cluster chooses its name and its ID.
func nameRefusal(peer discoveryv1alpha1.ClusterIdentity, all []discoveryv1alpha1.ForeignCluster) string {
	taken := map[string]bool{}
	for i := range all {
		other := all[i].Spec.ClusterIdentity
		if other != nil && other.ClusterID != peer.ClusterID && other.UniqueName() == peer.UniqueName() {
			return fmt.Sprintf("this cluster knows another one with the name %s and the same first digits of the hash of its ID; %s", peer.ClusterName, renameRemedy)
		}
		taken[all[i].Name] = other == nil || other.ClusterID != peer.ClusterID
	}
	if discoveryv1alpha1.OwnerOf(all, peer.ClusterID) == nil && taken[peer.ClusterName] && taken[peer.UniqueName()] {
		return fmt.Sprintf("this cluster knows other ones as %s and %s; %s", peer.ClusterName, peer.UniqueName(), renameRemedy)
	}
	return ""
}
