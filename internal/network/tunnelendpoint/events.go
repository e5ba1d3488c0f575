// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

// recordCarrier records an event at the ForeignCluster when another carrier than before carries the tunnel.
func (r *reconciler) recordCarrier(s *scope, status *netv1alpha1.TunnelEndpointStatus) {
	before, now := s.tunnel.Status.Connection.PeerConfiguration[netv1alpha1.PeerCarrier], status.Connection.PeerConfiguration[netv1alpha1.PeerCarrier]
	before = cmp.Or(before, r.carried[s.Namespace])
	if now != "" {
		r.carried[s.Namespace] = now
	}
	if kind, message := carrierChange(before, now, status.Connection.PeerConfiguration[netv1alpha1.PeerCarrierReason]); message != "" && s.FC != nil {
		r.events.Eventf(s.FC, nil, kind, netv1alpha1.ReasonCarrierChanged, "ProbeNetwork", "%s", message)
	}
}

// carrierChange returns the event for a change of the carrier; no message if there is nothing to report. The first carrier of a peering is reported
// if it is not UDP.
func carrierChange(before, now, why string) (kind, message string) {
	switch {
	case now == "" || now == before || before == "" && now == netv1alpha1.CarrierUDP:
		return "", ""
	case now == netv1alpha1.CarrierUDP:
		return corev1.EventTypeNormal, "the tunnel goes over UDP again, after " + before
	case before == "":
		return corev1.EventTypeWarning, fmt.Sprintf("the tunnel goes over %s (%s)", now, why)
	}
	return corev1.EventTypeWarning, fmt.Sprintf("the tunnel goes over %s instead of %s (%s)", now, before, why)
}

// recordCutOff records an event at the ForeignCluster when other nodes than before are cut off.
func (r *reconciler) recordCutOff(s *scope, status *netv1alpha1.TunnelEndpointStatus) {
	now := meta.FindStatusCondition(status.Conditions, netv1alpha1.ConditionConnected)
	before := meta.FindStatusCondition(s.tunnel.Status.Conditions, netv1alpha1.ConditionConnected)
	if now.Reason == netv1alpha1.ReasonNodesCutOff && (before == nil || before.Message != now.Message) && s.FC != nil {
		r.events.Eventf(s.FC, nil, corev1.EventTypeWarning, netv1alpha1.ReasonNodesCutOff, "ProbeNetwork", "%s", now.Message)
	}
}
