// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"strings"
	"testing"
	"time"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/actiontest"
)

// TestRefusalEndsTheWait: a refusal that lasts ends the wait before the timeout.
func TestRefusalEndsTheWait(t *testing.T) {
	progress := &actiontest.Recorder{}
	w := &peering{name: "milan", stages: stages, reported: map[discoveryv1alpha1.PeeringConditionType]string{}, progress: progress}
	fc := actiontest.Known("milan", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryManual)
	fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{
		actiontest.Condition(discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.StatusDenied, "wrong token"),
	}
	start := time.Now()
	for _, later := range []time.Duration{0, time.Second, refusedAfter - 1} {
		if done, err := w.observe(fc, start.Add(later)); done || err != nil {
			t.Fatalf("after %s: %v %v", later, done, err)
		}
	}
	if _, err := w.observe(fc, start.Add(refusedAfter)); err == nil || !strings.Contains(err.Error(), "wrong token") {
		t.Errorf("a refusal that lasts: %v", err)
	}
	if strings.Count(progress.Text(), "wrong token") != 1 {
		t.Errorf("reported more than once: %s", progress.Text())
	}
}

// TestNetworkIsWaitedFor: a peering is not established before its network, and the command reports the reason.
func TestNetworkIsWaitedFor(t *testing.T) {
	progress := &actiontest.Recorder{}
	w := &peering{name: "milan", stages: stages, reported: map[discoveryv1alpha1.PeeringConditionType]string{}, progress: progress}
	fc := actiontest.Known("milan", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryManual)
	observe := func(status discoveryv1alpha1.PeeringConditionStatus, message string) bool {
		t.Helper()
		fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{
			actiontest.Condition(discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.StatusEstablished, ""),
			actiontest.Condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusEstablished, ""),
			actiontest.Condition(discoveryv1alpha1.NetworkStatus, status, message),
		}
		done, err := w.observe(fc, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	if observe(discoveryv1alpha1.StatusNone, "the remote cluster has not described its network yet") {
		t.Error("established without a network")
	}
	if err := w.explain(time.Second, context.DeadlineExceeded); !strings.Contains(err.Error(), "has not described its network yet") {
		t.Errorf("the final error is: %v", err)
	}
	if observe(discoveryv1alpha1.StatusPending, "no handshake yet") || observe(discoveryv1alpha1.StatusError, "all probes lost") {
		t.Error("established before the tunnel was up")
	}
	if !strings.Contains(progress.Text(), "all probes lost") {
		t.Errorf("a failing tunnel was not reported: %s", progress.Text())
	}
	if !observe(discoveryv1alpha1.StatusEstablished, "") || !strings.Contains(progress.Text(), `Network established to the remote cluster "milan"`) {
		t.Errorf("with a network: %s", progress.Text())
	}
}

// TestStillEndingPeering: a peering that begins while the one before it ends reports that once for each state, and warns of nothing.
func TestStillEndingPeering(t *testing.T) {
	lines := &actiontest.Recorder{}
	w := &peering{name: "milan", stages: stages, reported: map[discoveryv1alpha1.PeeringConditionType]string{}, progress: lines}
	fc := actiontest.Known("milan", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryManual)
	for _, message := range []string{"waiting for node liqo-milan", "waiting for node liqo-milan", "waiting for the remote cluster"} {
		fc.Status.PeeringConditions = []discoveryv1alpha1.PeeringCondition{
			actiontest.Condition(discoveryv1alpha1.AuthenticationStatus, discoveryv1alpha1.StatusEstablished, ""),
			actiontest.Condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusDisconnecting, message),
		}
		if done, err := w.observe(fc, time.Now()); done || err != nil {
			t.Errorf("%s: %t, %v", message, done, err)
		}
	}
	if text := lines.Text(); strings.Count(text, "INFO The peering before this one is still ending: OutgoingPeering is Disconnecting: waiting for") != 2 ||
		strings.Contains(text, "WARN") {
		t.Errorf("lines\n%s", text)
	}
}
