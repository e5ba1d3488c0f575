// SPDX-License-Identifier: Apache-2.0

package tunnelendpoint

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/events"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/tenants"
)

// TestCarrierChange: an event for each change, and for a first carrier that is not UDP.
func TestCarrierChange(t *testing.T) {
	for _, test := range [][5]string{
		{"", "UDP", "", "", ""},
		{"UDP", "UDP", "", "", ""},
		{"TLS", "", "", "", ""},
		{"", "TLS", "UDP: no answer", "Warning", "the tunnel goes over TLS (UDP: no answer)"},
		{"UDP", "WebSocket", "UDP: no answer", "Warning", "the tunnel goes over WebSocket instead of UDP (UDP: no answer)"},
		{"TLS", "UDP", "", "Normal", "the tunnel goes over UDP again, after TLS"},
	} {
		if kind, message := carrierChange(test[0], test[1], test[2]); kind != test[3] || message != test[4] {
			t.Errorf("%q to %q: %s %q", test[0], test[1], kind, message)
		}
	}
}

// TestCarrierIsRemembered: a tunnel that is down between two carriers leaves an event as well.
func TestCarrierIsRemembered(t *testing.T) {
	const most = 10
	recorder := events.NewFakeRecorder(most)
	r := &reconciler{events: recorder, carried: map[string]string{}}
	s := &scope{Tenant: tenants.Tenant{Namespace: "liqo-tenant-milan", FC: &discoveryv1alpha1.ForeignCluster{}}, tunnel: &netv1alpha1.TunnelEndpoint{}}
	for _, carrier := range []string{"UDP", "", "TLS", "TLS", "", "UDP", "", "UDP"} {
		var status netv1alpha1.TunnelEndpointStatus
		status.Connection.PeerConfiguration = map[string]string{}
		if carrier != "" {
			status.Connection.PeerConfiguration[netv1alpha1.PeerCarrier] = carrier
		}
		r.recordCarrier(s, &status)
		s.tunnel.Status = status
	}
	close(recorder.Events)
	var got []string
	for one := range recorder.Events {
		got = append(got, one)
	}
	if len(got) != 2 || !strings.Contains(got[0], "TLS instead of UDP") || !strings.Contains(got[1], "UDP again, after TLS") {
		t.Errorf("events: %q", got)
	}
}
