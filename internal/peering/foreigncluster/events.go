// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/trust"
)

// decisionEvent returns the event of a changed decision about a peer. The first decision has none: it is that of the cluster's setting.
func decisionEvent(before, after *discoveryv1alpha1.IncomingStatus) trust.Event {
	if before == nil || after == nil || before.State == after.State {
		return trust.Event{}
	}
	switch after.State {
	case discoveryv1alpha1.IncomingAccepted:
		return trust.Normal("PeerAccepted", "the cluster may use this one: "+after.Message)
	case discoveryv1alpha1.IncomingWaiting:
		return trust.Normal("PeerWaiting", "the cluster gets nothing until an administrator sets spec.incomingPeeringEnabled to Yes or No")
	case discoveryv1alpha1.IncomingWithdrawing:
		return trust.Warning("PeerWithdrawing", "the cluster may not use this one any more, and has time to take its pods away: "+after.Message)
	case discoveryv1alpha1.IncomingRefused:
		return trust.Warning("PeerDenied", "the cluster may not use this one: "+after.Message)
	}
	return trust.Event{}
}

// grantEvent returns the event of a grant that a provider has signed: it names another API server than the one before, or it comes after a break in which
// this cluster had no valid token. before is nil at first contact.
func grantEvent(before *remote.Identity, grant remote.Identity, now time.Time) trust.Event {
	switch {
	case before == nil || before.APIServerURL == "":
		return trust.Event{}
	case before.APIServerURL != grant.APIServerURL:
		return trust.Warning("ProviderMoved", fmt.Sprintf("the provider's signed grant names another API server: %s instead of %s", grant.APIServerURL, before.APIServerURL))
	case !bytes.Equal(before.APIServerCA, grant.APIServerCA):
		return trust.Warning("ProviderCAChanged", "the provider's signed grant has another certificate authority for its API server, "+grant.APIServerURL)
	case !before.ExpiresAt.IsZero() && now.After(before.ExpiresAt):
		return trust.Normal("IdentityRenewed", fmt.Sprintf("the provider has renewed the identity of this cluster, which had expired %s before", now.Sub(before.ExpiresAt).Round(time.Second)))
	}
	return trust.Event{}
}

// insideEvent returns the event of a renewal through the tunnel after one that needed none: the authentication service of the provider is held, or the way
// there is closed. That another service answers in its place is an event also if the renewal before went through the tunnel for another reason. before and
// reason are of whyInside, and empty for a renewal that needed none.
func insideEvent(before, reason string) trust.Event {
	const note = "the identity of this cluster was renewed through the tunnel: "
	switch {
	case strings.HasPrefix(reason, unprovenInside) && !strings.HasPrefix(before, unprovenInside):
		return trust.Warning("ProviderUnproven", note+reason)
	case before == "" && reason != "":
		return trust.Warning("IdentityRenewedInside", note+reason)
	}
	return trust.Event{}
}
