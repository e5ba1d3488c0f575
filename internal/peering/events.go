// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/metric"
	"liqo.io/liqo/internal/kube/remote"
)

// trustEvent is one event about whom this cluster trusts with what. Its reason is also a value of the metric.
type trustEvent struct {
	// eventType is Normal or Warning. No reason means no event.
	eventType, reason, note string
}

var trustEvents = metric.Counters(metric.Row{
	Name: "liqo_peer_trust_events_total", Type: metric.Counter,
	Help:   "Events about the trust in peers, by the reason of the Kubernetes event: admissions, refusals, decisions, late renewals, new addresses.",
	Labels: []string{"reason"},
	Roles:  []string{"controller-manager"},
	Panel:  metric.Panel{Title: "Changes of the trust in peers", Query: `sum by (reason) (increase(liqo_peer_trust_events_total[1h]))`, Unit: "short"},
})

// send sends the event, if there is one.
func (e trustEvent) send(recorder events.EventRecorder, about client.Object, action string) {
	if e.reason == "" {
		return
	}
	trustEvents().WithLabelValues(e.reason).Inc()
	recorder.Eventf(about, nil, e.eventType, e.reason, action, "%s", e.note)
}

// decisionEvent returns the event of a changed decision about a peer. The first decision has none: it is that of the cluster's setting.
func decisionEvent(before, after *discoveryv1alpha1.IncomingStatus) trustEvent {
	if before == nil || after == nil || before.State == after.State {
		return trustEvent{}
	}
	switch after.State {
	case discoveryv1alpha1.IncomingAccepted:
		return trustEvent{corev1.EventTypeNormal, "PeerAccepted", "the cluster may use this one: " + after.Message}
	case discoveryv1alpha1.IncomingWaiting:
		return trustEvent{corev1.EventTypeNormal, "PeerWaiting", "the cluster gets nothing until an administrator sets spec.incomingPeeringEnabled to Yes or No"}
	case discoveryv1alpha1.IncomingWithdrawing:
		return trustEvent{corev1.EventTypeWarning, "PeerWithdrawing", "the cluster may not use this one any more, and has time to take its pods away: " + after.Message}
	case discoveryv1alpha1.IncomingRefused:
		return trustEvent{corev1.EventTypeWarning, "PeerDenied", "the cluster may not use this one: " + after.Message}
	}
	return trustEvent{}
}

// grantEvent returns the event of a grant that a provider has signed: it names another API server than the one before, or it comes after a break in which
// this cluster had no valid token. before is nil at first contact.
func grantEvent(before *remote.Identity, grant remote.Identity, now time.Time) trustEvent {
	switch {
	case before == nil || before.APIServerURL == "":
		return trustEvent{}
	case before.APIServerURL != grant.APIServerURL:
		return trustEvent{corev1.EventTypeWarning, "ProviderMoved", fmt.Sprintf("the provider's signed grant names another API server: %s instead of %s", grant.APIServerURL, before.APIServerURL)}
	case !bytes.Equal(before.APIServerCA, grant.APIServerCA):
		return trustEvent{corev1.EventTypeWarning, "ProviderCAChanged", "the provider's signed grant has another certificate authority for its API server, " + grant.APIServerURL}
	case !before.ExpiresAt.IsZero() && now.After(before.ExpiresAt):
		return trustEvent{corev1.EventTypeNormal, "IdentityRenewed", fmt.Sprintf("the provider has renewed the identity of this cluster, which had expired %s before", now.Sub(before.ExpiresAt).Round(time.Second))}
	}
	return trustEvent{}
}

// insideEvent returns the event of a renewal through the tunnel after one that needed none: the authentication service of the provider is held, or the way
// there is closed. That another service answers in its place is an event also if the renewal before went through the tunnel for another reason. before and
// reason are of whyInside, and empty for a renewal that needed none.
func insideEvent(before, reason string) trustEvent {
	const note = "the identity of this cluster was renewed through the tunnel: "
	switch {
	case strings.HasPrefix(reason, unprovenInside) && !strings.HasPrefix(before, unprovenInside):
		return trustEvent{corev1.EventTypeWarning, "ProviderUnproven", note + reason}
	case before == "" && reason != "":
		return trustEvent{corev1.EventTypeWarning, "IdentityRenewedInside", note + reason}
	}
	return trustEvent{}
}
