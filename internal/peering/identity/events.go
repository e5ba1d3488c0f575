// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"liqo.io/liqo/apis/reasons"
	"liqo.io/liqo/internal/kube/remote"
	"liqo.io/liqo/internal/peering/trust"
)

// GrantEvent returns the event of a grant that a provider has signed: it names another API server than the one before, or it comes after a break in which
// this cluster had no valid token. before is nil at first contact.
func GrantEvent(before *remote.Identity, grant remote.Identity, now time.Time) trust.Event {
	switch {
	case before == nil || before.APIServerURL == "":
		return trust.Event{}
	case before.APIServerURL != grant.APIServerURL:
		return trust.Warning(
			reasons.ProviderMoved,
			fmt.Sprintf("the provider's signed grant names another API server: %s instead of %s", grant.APIServerURL, before.APIServerURL),
		)
	case !bytes.Equal(before.APIServerCA, grant.APIServerCA):
		return trust.Warning(reasons.ProviderCAChanged, "the provider's signed grant has another certificate authority for its API server, "+grant.APIServerURL)
	case !before.ExpiresAt.IsZero() && now.After(before.ExpiresAt):
		return trust.Normal(
			reasons.IdentityRenewed,
			fmt.Sprintf("the provider has renewed the identity of this cluster, which had expired %s before", now.Sub(before.ExpiresAt).Round(time.Second)),
		)
	}
	return trust.Event{}
}

// InsideEvent returns the event of a renewal through the tunnel after one that needed none: the authentication service of the provider is held, or the way
// there is closed. That another service answers in its place is an event also if the renewal before went through the tunnel for another reason. before and
// reason are of whyInside, and empty for a renewal that needed none.
func InsideEvent(before, reason string) trust.Event {
	const note = "the identity of this cluster was renewed through the tunnel: "
	switch {
	case strings.HasPrefix(reason, unprovenInside) && !strings.HasPrefix(before, unprovenInside):
		return trust.Warning(reasons.ProviderUnproven, note+reason)
	case before == "" && reason != "":
		return trust.Warning(reasons.IdentityRenewedInside, note+reason)
	}
	return trust.Event{}
}
