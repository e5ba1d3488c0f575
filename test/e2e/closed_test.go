// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	discovery "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
)

// insideMessage is part of the condition while the identity is one that was renewed through the tunnel.
const insideMessage = "renewed through the tunnel"

// attackNH2Tunnel: packets from the consumer to the authentication service of its provider are lost. The consumer renews its identity through the tunnel, in
// time, and by the usual way again as soon as that is open.
func attackNH2Tunnel(t *testing.T) {
	clusters.NeedsPlayground(t, "links that are closed")
	t.Cleanup(func() {
		rome.TryKubectl("", "annotate", "foreigncluster", milan.Name, labels.OwnKey+"-")
	})
	namespace := rome.Foreign(t, milan).Status.TenantNamespace.Local
	env.Eventually(t, env.Hang, "milan offers rome its proxy", func() (string, bool) {
		r := rome.TryKubectl("", "-n", namespace, "get", "resourceslices.sharing.liqo.io", "-o", "jsonpath={.items[*].status.proxyUrl}")
		return r.String(), r.Code == 0 && strings.HasSuffix(r.Out, ":8118")
	})
	usual := renewOnce(t, "while the way is open", env.Hang)
	wantInside(t, false)
	closeAllBut(t, "udp/"+gatewayPort(t, milan), "tcp/6443")
	slowest := time.Duration(0)
	for _, which := range []string{"through the tunnel", "through the tunnel again"} {
		slowest = max(slowest, renewOnce(t, which, inTime))
		wantInside(t, true)
	}
	clusters.Measure(
		"renewal while the authentication service cannot be reached", "%v through the tunnel (%v directly)", slowest.Round(time.Millisecond),
		usual.Round(time.Millisecond),
	)
	rome.NodeReady(t, milan)
	clusters.Do(t, "fault", "heal", rome.Name, milan.Name)
	renewOnce(t, "after the way is open again", env.Hang)
	wantInside(t, false)
	rome.WantColumns(t, milan, "Established None Established Established")
}

// wantInside waits until the condition states how the identity of rome was renewed.
func wantInside(t *testing.T, want bool) {
	t.Helper()
	env.Eventually(t, env.Hang, "rome reports the way of the renewal", func() (string, bool) {
		is := env.PeeringCondition(rome.Foreign(t, milan), discovery.AuthenticationStatus)
		return string(is.Status) + ": " + is.Message, is.Status == discovery.StatusEstablished && strings.Contains(is.Message, insideMessage) == want
	})
}
