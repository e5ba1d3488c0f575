// SPDX-License-Identifier: Apache-2.0

package networkconfig

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/kube/printable"
	"liqo.io/liqo/internal/network/endpoint"
)

// wantsNetwork reports whether to announce our network to a peer: as soon as a peering is requested in either direction, so that the clusters agree on
// addresses while the rest is still being set up, and until no peering is left in either. What a peer that may not use this cluster requests does not count.
func wantsNetwork(fc *discoveryv1alpha1.ForeignCluster) bool {
	if fc.Spec.PeeringType == discoveryv1alpha1.InBand && fc.DeletionTimestamp == nil &&
		(fc.Status.Incoming == nil || fc.Status.Incoming.State != discoveryv1alpha1.IncomingRefused) {
		return true // everything else goes through the tunnel, so it comes first
	}
	for i := range fc.Status.PeeringConditions {
		c := &fc.Status.PeeringConditions[i]
		switch c.Type {
		case discoveryv1alpha1.OutgoingPeering:
			if c.Status != discoveryv1alpha1.StatusNone && c.Status != "" {
				return true
			}
		case discoveryv1alpha1.IncomingPeering:
			if c.Status != discoveryv1alpha1.StatusNone && c.Status != "" && fc.Keeps() {
				return true
			}
		case discoveryv1alpha1.AuthenticationStatus:
			// A cluster that exists here only because it registered either requests resources soon, or is deleted.
			if c.Status == discoveryv1alpha1.StatusEstablished && fc.DeletionTimestamp == nil &&
				fc.Labels[labels.DiscoveryType] == labels.DiscoveryIncoming && fc.Accepts() {
				return true
			}
		default:
		}
	}
	return fc.DeletionTimestamp == nil && fc.Spec.OutgoingPeeringEnabled == discoveryv1alpha1.PeeringYes
}

// publication returns whether our announcement to a peer is complete and its answer valid. answerErr is why its answer is not used.
func publication(ours *netv1alpha1.NetworkConfig, ends []endpoint.Gateway, answerErr error) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Status: status, Reason: reason, Message: message}
	}
	if len(ends) == 0 {
		return is(
			metav1.ConditionFalse, netv1alpha1.ReasonGatewayNotFound,
			"no Service has the label net.liqo.io/gateway=true, so there is no gateway; see `kubectl get services -A -l net.liqo.io/gateway`",
		)
	}
	var problems []string
	for i := range ends {
		if ends[i].Problem != "" {
			problems = append(problems, fmt.Sprintf("lane %d: %s", ends[i].Lane, ends[i].Problem))
		}
	}
	if len(problems) > 0 {
		return is(metav1.ConditionFalse, netv1alpha1.ReasonGatewayNoAddress, strings.Join(problems, "; ")+"; until then the peer's gateway must be reachable")
	}
	if !ours.Status.Processed {
		if condition := meta.FindStatusCondition(ours.Status.Conditions, netv1alpha1.ConditionReady); condition != nil && condition.Status == metav1.ConditionFalse {
			return is(metav1.ConditionFalse, netv1alpha1.ReasonAnswerInvalid, "the peer refuses this cluster's network: "+printable.Line(condition.Message, 200))
		}
		return is(metav1.ConditionFalse, netv1alpha1.ReasonAnswerPending, "the peer has not answered yet")
	}
	if answerErr != nil {
		return is(metav1.ConditionFalse, netv1alpha1.ReasonAnswerInvalid, "the peer's answer cannot be used: "+printable.Line(answerErr.Error(), 200))
	}
	return is(metav1.ConditionTrue, netv1alpha1.ReasonPublished, "the peer knows this cluster's network")
}
