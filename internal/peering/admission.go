// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/clusterkey"
	"liqo.io/liqo/internal/peering/auth"
)

// PeerLimits bound how many clusters may register. Zero means no limit.
type PeerLimits struct {
	// Total is of all clusters, PerToken of those that made first contact with the same token.
	Total, PerToken int
}

// registrations are the clusters that are registered, as far as the limits need to know.
type registrations struct{ total, withToken int }

// admissionRefusal returns why a cluster that made first contact is not admitted, for its administrator; empty if it is. fc is the ForeignCluster of its
// ID, nil if there is none; registered are the other clusters.
func admissionRefusal(pin *auth.Pin, fc *discoveryv1alpha1.ForeignCluster, registered registrations, limits PeerLimits) string {
	switch {
	// Cluster IDs are public. So a stolen token would suffice to register under the ID of a cluster that we use, and to get its rights and its part of
	// the tunnel. Only that cluster can sign with the key that it has as our provider.
	case fc != nil && fc.Spec.ClusterKey != "" && fc.Spec.ClusterKey != clusterkey.Fingerprint(pin.ClusterKey):
		return fmt.Sprintf("this cluster uses %s already and knows it by another key, with the fingerprint %s; if it has a new key, "+
			"an administrator of this cluster peers with it again, using the output of `liqoctl generate peer-command` there", pin.Cluster.ClusterID, fc.Spec.ClusterKey)
	case limits.Total > 0 && registered.total >= limits.Total:
		return fmt.Sprintf("this cluster has %d peers, and admits no more than %d; an administrator raises auth.config.maxPeers, or unpeers another cluster", registered.total, limits.Total)
	case limits.PerToken > 0 && pin.TokenID != "" && registered.withToken >= limits.PerToken:
		return fmt.Sprintf("%d clusters have registered with this token, and no more than %d may; an administrator raises auth.config.maxPeersPerToken, or issues another token with `liqoctl generate peer-command --for %s`",
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

// decision is whether a cluster may use this one, as this cluster's administrators want it.
type decision struct {
	state   discoveryv1alpha1.IncomingState // Accepted, Waiting or Refused
	message string
}

// decide is the one place where it is decided whether a cluster may use this one: by its ForeignCluster, else by the setting of this cluster.
func decide(object, setting discoveryv1alpha1.PeeringEnabled) decision {
	switch object {
	case discoveryv1alpha1.PeeringYes:
		return decision{discoveryv1alpha1.IncomingAccepted, "spec.incomingPeeringEnabled of the ForeignCluster is Yes"}
	case discoveryv1alpha1.PeeringNo:
		return decision{discoveryv1alpha1.IncomingRefused, "the provider does not let this cluster use its resources: spec.incomingPeeringEnabled of the ForeignCluster there is No; " +
			"its administrator can change that"}
	case discoveryv1alpha1.PeeringManual:
		return decision{discoveryv1alpha1.IncomingWaiting, waitingMessage}
	}
	switch setting {
	case discoveryv1alpha1.PeeringNo:
		return decision{discoveryv1alpha1.IncomingRefused, "the provider lets no cluster use its resources by default; its administrator can set " +
			"spec.incomingPeeringEnabled of the ForeignCluster there to Yes"}
	case discoveryv1alpha1.PeeringManual:
		return decision{discoveryv1alpha1.IncomingWaiting, waitingMessage}
	default:
		return decision{discoveryv1alpha1.IncomingAccepted, "the provider lets all registered clusters use its resources by default"}
	}
}

// decide returns whether a cluster may use this one. While admission policies are missing, no further cluster is accepted: the roles alone give a peer more
// than it should have. A cluster that is accepted stays so, and gets no further namespaces and pods.
func (r *fcReconciler) decide(ctx context.Context, fc *discoveryv1alpha1.ForeignCluster) (decision, error) {
	decided := decide(fc.Spec.IncomingPeeringEnabled, r.options.IncomingPeering)
	if decided.state != discoveryv1alpha1.IncomingAccepted || fc.Accepts() {
		return decided, nil
	}
	missing, err := r.options.Policies.Missing(ctx)
	if missing != "" {
		decided = decision{discoveryv1alpha1.IncomingWaiting, missing}
	}
	return decided, err
}

const waitingMessage = "an administrator of the provider has to decide: they set spec.incomingPeeringEnabled of the ForeignCluster there to Yes or No"

// incomingStatus applies a decision. A cluster that is not accepted any more has until deadline to take its pods away; without pods, it has no time.
// requeueAfter is when the result changes without an event, zero if it does not.
func incomingStatus(d decision, before *discoveryv1alpha1.IncomingStatus, runsPods bool, deadline time.Duration, now time.Time) (status discoveryv1alpha1.IncomingStatus, requeueAfter time.Duration) {
	status = discoveryv1alpha1.IncomingStatus{State: d.state, Message: d.message}
	if before != nil && d.state != discoveryv1alpha1.IncomingAccepted && runsPods {
		switch before.State {
		case discoveryv1alpha1.IncomingAccepted:
			status.State, requeueAfter = discoveryv1alpha1.IncomingWithdrawing, deadline
		case discoveryv1alpha1.IncomingWithdrawing:
			if left := before.Since.Add(deadline).Sub(now); left > 0 {
				status.State, requeueAfter = discoveryv1alpha1.IncomingWithdrawing, left
			}
		case discoveryv1alpha1.IncomingWaiting, discoveryv1alpha1.IncomingRefused:
		}
	}
	status.Since = metav1.NewTime(now).Rfc3339Copy()
	if before != nil && before.State == status.State && !before.Since.IsZero() {
		status.Since = before.Since
	}
	return status, requeueAfter
}
