// SPDX-License-Identifier: Apache-2.0

// Package admission decides whether a cluster may use this one. The decision is pure; Policy adds whether the admission policies that limit peers are in force.
package admission

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/reasons"
	"liqo.io/liqo/internal/kube/policies"
	"liqo.io/liqo/internal/peering/trust"
)

// WithdrawDeadline is how long a provider that ends a peering waits for the consumer to delete its pods here.
const WithdrawDeadline = 120 * time.Second

// Decision is whether a cluster may use this one, as this cluster's administrators want it.
type Decision struct {
	State   discoveryv1alpha1.IncomingState // Accepted, Waiting or Refused
	Message string
}

// Decide is the one place where it is decided whether a cluster may use this one: by its ForeignCluster, else by the setting of this cluster.
func Decide(object, setting discoveryv1alpha1.PeeringEnabled) Decision {
	switch object {
	case discoveryv1alpha1.PeeringYes:
		return Decision{discoveryv1alpha1.IncomingAccepted, "spec.incomingPeeringEnabled of the ForeignCluster is Yes"}
	case discoveryv1alpha1.PeeringNo:
		return Decision{discoveryv1alpha1.IncomingRefused, "the provider does not let this cluster use its resources: spec.incomingPeeringEnabled " +
			"of the ForeignCluster there is No; " +
			"its administrator can change that"}
	case discoveryv1alpha1.PeeringManual:
		return Decision{discoveryv1alpha1.IncomingWaiting, waitingMessage}
	}
	switch setting {
	case discoveryv1alpha1.PeeringNo:
		return Decision{discoveryv1alpha1.IncomingRefused, "the provider lets no cluster use its resources by default; its administrator can set " +
			"spec.incomingPeeringEnabled of the ForeignCluster there to Yes"}
	case discoveryv1alpha1.PeeringManual:
		return Decision{discoveryv1alpha1.IncomingWaiting, waitingMessage}
	default:
		return Decision{discoveryv1alpha1.IncomingAccepted, "the provider lets all registered clusters use its resources by default"}
	}
}

// Policy is what this cluster's administrators want.
type Policy struct {
	// Setting is what incomingPeeringEnabled Auto means: Yes, No or Manual (--incoming-peering, default Yes).
	Setting discoveryv1alpha1.PeeringEnabled
	// Policies knows whether the admission policies that limit peers are in force; nil if they are not required.
	Policies *policies.Guard
}

// Decide returns whether a cluster may use this one. While admission policies are missing, no further cluster is accepted: the roles alone give a peer more
// than it should have. A cluster that is accepted stays so, and gets no further namespaces and pods.
func (p Policy) Decide(ctx context.Context, fc *discoveryv1alpha1.ForeignCluster) (Decision, error) {
	decided := Decide(fc.Spec.IncomingPeeringEnabled, p.Setting)
	if decided.State != discoveryv1alpha1.IncomingAccepted || fc.Accepts() {
		return decided, nil
	}
	missing, err := p.Policies.Missing(ctx)
	if missing != "" {
		decided = Decision{discoveryv1alpha1.IncomingWaiting, missing}
	}
	return decided, err
}

const waitingMessage = "an administrator of the provider has to decide: they set spec.incomingPeeringEnabled of the ForeignCluster there to Yes or No"

// Status applies a decision. A cluster that is not accepted any more has until deadline to take its pods away; without pods, it has no time.
// requeueAfter is when the result changes without an event, zero if it does not.
func Status(
	d Decision, before *discoveryv1alpha1.IncomingStatus, runsPods bool, deadline time.Duration, now time.Time,
) (status discoveryv1alpha1.IncomingStatus, requeueAfter time.Duration) {
	status = discoveryv1alpha1.IncomingStatus{State: d.State, Message: d.Message}
	if before != nil && d.State != discoveryv1alpha1.IncomingAccepted && runsPods {
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

// Event returns the event of a changed decision about a peer. The first decision has none: it is that of the cluster's setting.
func Event(before, after *discoveryv1alpha1.IncomingStatus) trust.Event {
	if before == nil || after == nil || before.State == after.State {
		return trust.Event{}
	}
	switch after.State {
	case discoveryv1alpha1.IncomingAccepted:
		return trust.Normal(reasons.PeerAccepted, "the cluster may use this one: "+after.Message)
	case discoveryv1alpha1.IncomingWaiting:
		return trust.Normal(reasons.PeerWaiting, "the cluster gets nothing until an administrator sets spec.incomingPeeringEnabled to Yes or No")
	case discoveryv1alpha1.IncomingWithdrawing:
		return trust.Warning(reasons.PeerWithdrawing, "the cluster may not use this one any more, and has time to take its pods away: "+after.Message)
	case discoveryv1alpha1.IncomingRefused:
		return trust.Warning(reasons.PeerDenied, "the cluster may not use this one: "+after.Message)
	}
	return trust.Event{}
}
