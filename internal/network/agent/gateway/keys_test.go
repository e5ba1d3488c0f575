// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/plan/carriers"
)

// A gateway that starts while a peer changes its key reads the previous key from the tunnel endpoint, for as long as it may be in use.
func TestPreviousKey(t *testing.T) {
	for age, want := range map[time.Duration][]string{time.Second: {"present", "next"}, carriers.Forgotten: {"next"}} {
		g := newBare()
		g.resolver = &resolver{}
		known, lane := &peer{tunnel: newTunnel()}, &plan.PeerLane{Keys: []string{"next"}}
		g.observeLane(began, known, lane, laneInputs{
			previous: agent.PreviousKey{PublicKey: "present", Until: began.Add(-age)}, elsewhere: func(string) bool { return false },
		})
		if diff := cmp.Diff(want, lane.Keys); diff != "" {
			t.Errorf("replaced %v ago: %s", age, diff)
		}
	}
}

func TestKeyring(t *testing.T) {
	k := &Keyring{Read: func(secret *corev1.Secret, lane int) (Key, bool, error) {
		public, ok := secret.Labels["public"]
		return Key{Public: public, Private: [32]byte{byte(len(public))}}, ok, nil
	}}
	secret := func(public string) *corev1.Secret {
		s := &corev1.Secret{}
		s.Labels = map[string]string{"public": public}
		return s
	}
	for _, step := range []struct {
		secret *corev1.Secret
		want   string
	}{{nil, ""}, {&corev1.Secret{}, ""}, {secret("a"), "a"}, {nil, "a"}, {&corev1.Secret{}, "a"}, {secret("bb"), "bb"}, {secret("bb"), "bb"}} {
		if got, err := k.own(step.secret, 0); got != step.want || err != nil {
			t.Errorf("%v: key %q, %v; want %q", step.secret, got, err, step.want)
		}
	}
	for public, want := range map[string]bool{"a": true, "bb": true, "ccc": false} {
		if _, ok := k.Private(public); ok != want {
			t.Errorf("private key of %s: %v", public, ok)
		}
	}
	if text := (Key{Public: "p", Private: [32]byte{77}}).String(); text != "gateway key p" {
		t.Error(text)
	}
}

// newTunnel is that of a peer of which nothing is known. Attempts have no jitter.
func newTunnel() *carriers.Peer { return carriers.New(func(time.Duration) time.Duration { return 0 }) }

var (
	began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hostA = netip.MustParseAddrPort("203.0.113.1:5871")
	hostB = netip.MustParseAddrPort("203.0.113.2:5871")
)
