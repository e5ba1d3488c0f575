// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/action/actiontest"
	"liqo.io/liqo/internal/action/peer"
	"liqo.io/liqo/internal/action/unpeer"
)

// testUnpeer does the work of the controllers: each row sets the conditions of the object before the command, and the test ends
// the outgoing direction.
func testUnpeer(t *testing.T, config *rest.Config) {
	established, none := discoveryv1alpha1.StatusEstablished, discoveryv1alpha1.StatusNone
	for name, test := range map[string]struct {
		discovery          string
		kind               discoveryv1alpha1.PeeringType
		outgoing, incoming discoveryv1alpha1.PeeringConditionStatus
		outOfBand, force   bool

		wantError   string
		wantGone    bool
		wantLabel   string
		wantWarning string
	}{
		"outgoing only":       {discovery: labels.DiscoveryManual, outgoing: established, incoming: none, wantLabel: labels.DiscoveryManual},
		"out-of-band":         {discovery: labels.DiscoveryManual, outgoing: established, incoming: none, outOfBand: true, wantGone: true},
		"out-of-band, forced": {discovery: labels.DiscoveryManual, outgoing: established, incoming: none, outOfBand: true, force: true, wantGone: true},
		"both directions": {
			discovery: labels.DiscoveryManual, outgoing: established, incoming: established, outOfBand: true, wantLabel: labels.DiscoveryIncoming,
			wantWarning: "run in the remote cluster",
		},
		"both directions, forced": {
			discovery: labels.DiscoveryManual, outgoing: established, incoming: established, outOfBand: true, force: true,
			wantLabel: labels.DiscoveryIncoming, wantWarning: "still uses",
		},
		"both directions, generic": {
			discovery: labels.DiscoveryManual, outgoing: established, incoming: established, wantLabel: labels.DiscoveryManual,
		},
		"incoming only": {
			discovery: labels.DiscoveryIncoming, outgoing: none, incoming: established, outOfBand: true, wantGone: true,
			wantWarning: "loses its access",
		},
		"in-band": {
			discovery: labels.DiscoveryManual, kind: discoveryv1alpha1.InBand, outgoing: established, incoming: none, outOfBand: true,
			wantError: "type InBand",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := actiontest.Installed(t, config)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if test.kind == "" {
				test.kind = discoveryv1alpha1.OutOfBand
			}
			fc := actiontest.Known("milan", actiontest.RemoteID, test.kind, test.discovery)
			if test.outgoing == established {
				fc.Spec.OutgoingPeeringEnabled = discoveryv1alpha1.PeeringYes
			}
			actiontest.Create(t, c, fc)
			err := actiontest.SetStatus(
				ctx, c, "milan", nil, actiontest.Condition(discoveryv1alpha1.OutgoingPeering, test.outgoing, ""),
				actiontest.Condition(discoveryv1alpha1.IncomingPeering, test.incoming, ""),
			)
			if err != nil {
				t.Fatal(err)
			}
			before := actiontest.Inventory(t, c)
			controller := make(chan error, 1)
			ending, stop := context.WithCancel(ctx)
			defer stop()
			go func() {
				err := actiontest.SetStatus(ending, c, "milan", func(fc *discoveryv1alpha1.ForeignCluster) bool {
					return fc.Spec.OutgoingPeeringEnabled == discoveryv1alpha1.PeeringNo && (fc.Annotations[labels.ForceUnpeer] == "true") == test.force
				}, actiontest.Condition(discoveryv1alpha1.OutgoingPeering, none, ""))
				if errors.Is(err, context.Canceled) {
					err = nil // the command did not disable the direction
				}
				controller <- err
			}()
			progress := &actiontest.Recorder{}
			o := unpeer.Options{Name: "milan", Timeout: 15 * time.Second, Force: test.force}
			act := unpeer.Disable
			if test.outOfBand {
				act = unpeer.OutOfBand
			}
			err = act(ctx, c, o, progress)
			stop()
			if err := <-controller; err != nil {
				t.Fatal(err)
			}
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got error %v, want one with %q", err, test.wantError)
				}
				if after := actiontest.Inventory(t, c); after != before {
					t.Errorf("changed:\n%s\nbefore:\n%s", after, before)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(progress.Text(), test.wantWarning) || strings.Contains(progress.Text(), "WARN") != (test.wantWarning != "") {
				t.Errorf("warnings:\n%s\nwant %q", progress.Text(), test.wantWarning)
			}
			var live discoveryv1alpha1.ForeignCluster
			err = c.Get(ctx, client.ObjectKey{Name: "milan"}, &live)
			if apierrors.IsNotFound(err) != test.wantGone {
				t.Fatalf("after it: %v", err)
			}
			if test.wantGone {
				return
			}
			if live.Labels[labels.DiscoveryType] != test.wantLabel ||
				live.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringNo || live.Annotations[labels.ForceUnpeer] != "" {
				t.Errorf("kept as %v %+v", live.ObjectMeta, live.Spec)
			}
			if live.Spec.ForeignAuthURL == "" || live.Spec.ClusterIdentity == nil {
				t.Errorf("lost fields that must not change: %+v", live.Spec)
			}
		})
	}
}

// testUnpeerWaits: the command does not trust conditions of an older spec, and its timeout error names the last state and a
// remedy.
func testUnpeerWaits(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	fc := actiontest.Known("milan", actiontest.RemoteID, discoveryv1alpha1.OutOfBand, labels.DiscoveryManual)
	fc.Spec.OutgoingPeeringEnabled = discoveryv1alpha1.PeeringYes
	actiontest.Create(t, c, fc)
	if err := actiontest.SetStatus(
		t.Context(), c, "milan", nil, actiontest.Condition(discoveryv1alpha1.OutgoingPeering, discoveryv1alpha1.StatusNone, ""),
	); err != nil {
		t.Fatal(err)
	}
	err := unpeer.Disable(t.Context(), c, unpeer.Options{Name: "milan", Timeout: time.Second}, &actiontest.Recorder{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "OutgoingPeering is None") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("got %v", err)
	}
	err = unpeer.Disable(t.Context(), c, unpeer.Options{Name: "turin", Timeout: time.Second}, &actiontest.Recorder{})
	if err == nil || !strings.Contains(err.Error(), `no ForeignCluster "turin"; the existing ones are milan`) {
		t.Errorf("unknown: %v", err)
	}
}

// testPeerAfterUnpeer: the fields that liqoctl applied before stay, and the annotation of a forced end is removed.
func testPeerAfterUnpeer(t *testing.T, config *rest.Config) {
	c := actiontest.Installed(t, config)
	url := provider(t, nil, time.Time{})
	short := peerOptions(url, func(o *peer.Options) { o.Timeout = 3 * time.Second })
	_ = peer.OutOfBand(t.Context(), c, short, &actiontest.Recorder{})
	_ = unpeer.Disable(t.Context(), c, unpeer.Options{Name: "milan", Timeout: time.Second, Force: true}, &actiontest.Recorder{})
	read := func() (fc discoveryv1alpha1.ForeignCluster) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKey{Name: "milan"}, &fc); err != nil {
			t.Fatal(err)
		}
		return fc
	}
	if fc := read(); fc.Spec.ForeignAuthURL != url || fc.Annotations[labels.ForceUnpeer] != "true" ||
		fc.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringNo {
		t.Errorf("after unpeer: %v %+v", fc.Annotations, fc.Spec)
	}
	_ = peer.Enable(t.Context(), c, short, &actiontest.Recorder{})
	if fc := read(); fc.Spec.ForeignAuthURL != url || fc.Annotations[labels.ForceUnpeer] != "" || fc.Spec.OutgoingPeeringEnabled != discoveryv1alpha1.PeeringYes {
		t.Errorf("after peer: %v %+v", fc.Annotations, fc.Spec)
	}
}
