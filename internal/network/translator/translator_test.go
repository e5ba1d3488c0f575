// SPDX-License-Identifier: Apache-2.0

package translator

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

var errNoCounterpart = errors.New("no counterpart")

// TestTranslator: translations are exact, or an error; never a guess.
func TestTranslator(t *testing.T) {
	changes := 0
	tr := empty(Options{ClusterID: "milan-id", ErrNoCounterpart: errNoCounterpart})
	tr.OnChange(func() { changes++ })
	address := netip.MustParseAddr
	if _, err := tr.ToLocal(address("10.1.2.3")); err == nil || errors.Is(err, errNoCounterpart) {
		t.Errorf("nothing is agreed: %v", err)
	}
	spec := netv1alpha1.TunnelEndpointSpec{
		ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: "milan-id"},
		LocalPodCIDR:    "10.10.0.0/16", LocalNATPodCIDR: "10.40.0.0/16", LocalExternalCIDR: "10.11.0.0/16", LocalNATExternalCIDR: "None",
		RemotePodCIDR: "10.10.0.0/16", RemoteNATPodCIDR: "10.30.0.0/16", RemoteExternalCIDR: "10.11.0.0/16", RemoteNATExternalCIDR: "10.31.0.0/16",
	}
	other := spec
	other.ClusterIdentity.ClusterID = "naples-id"
	tr.tunnelChanged(nil, &netv1alpha1.TunnelEndpoint{Spec: other})
	if changes != 0 {
		t.Error("the tunnel of another peer")
	}
	tr.tunnelChanged(nil, &netv1alpha1.TunnelEndpoint{Spec: spec})
	tr.tunnelChanged(nil, &netv1alpha1.TunnelEndpoint{Spec: spec})
	if changes != 1 {
		t.Errorf("%d changes", changes)
	}
	tr.tunnelChanged(&netv1alpha1.TunnelEndpoint{Spec: spec}, nil) // a deletion changes nothing
	for _, test := range []struct {
		how      func(netip.Addr) (netip.Addr, error)
		from, to string
	}{
		{tr.ToLocal, "10.10.2.7", "10.30.2.7"},
		{tr.ToLocal, "10.11.0.9", "10.31.0.9"},
		{tr.ToLocal, "192.168.1.1", ""},
		{tr.ToRemote, "10.10.1.5", "10.40.1.5"},
		{tr.ToRemote, "127.0.0.1", ""},
		{tr.ToRemote, "fd00::1", ""},
	} {
		got, err := test.how(address(test.from))
		switch {
		case test.to == "" && !errors.Is(err, errNoCounterpart):
			t.Errorf("%s: %v, %v", test.from, got, err)
		case test.to != "" && (err != nil || got.String() != test.to):
			t.Errorf("%s: %v, %v", test.from, got, err)
		}
	}

	// A mapping for an address outside of the pod network is requested once, and used when the peer's address is known.
	host := address("192.168.7.7")
	for range 3 {
		if _, err := tr.ToRemote(host); err == nil || errors.Is(err, errNoCounterpart) {
			t.Errorf("not known yet: %v", err)
		}
	}
	if len(tr.requests) != 1 || <-tr.requests != host {
		t.Error("not requested exactly once")
	}
	mapping := &netv1alpha1.IPMapping{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: netv1alpha1.IPMappingSpec{Address: host.String(), ClusterIDs: []string{"naples-id"}},
		Status: netv1alpha1.IPMappingStatus{PeerAddresses: map[string]string{"milan-id": "10.12.0.1"}},
	}
	tr.mappingChanged(nil, mapping)
	if _, err := tr.ToRemote(host); err == nil {
		t.Error("the mapping of another peer is used")
	}
	ours := mapping.DeepCopy()
	ours.Name, ours.Spec.ClusterIDs = "b", nil
	tr.mappingChanged(nil, ours)
	tr.mappingChanged(mapping, nil)
	if got, err := tr.ToRemote(host); err != nil || got.String() != "10.12.0.1" {
		t.Errorf("%v, %v", got, err)
	}
	refused := ours.DeepCopy()
	refused.Status = netv1alpha1.IPMappingStatus{Conditions: []metav1.Condition{{Type: netv1alpha1.ConditionReady, Status: metav1.ConditionFalse}}}
	tr.mappingChanged(ours, refused)
	if _, err := tr.ToRemote(host); !errors.Is(err, errNoCounterpart) {
		t.Errorf("refused for good: %v", err)
	}

}

// TestAttackM9: without Liqo's network, a provider's pods have the addresses that the administrator wrote down, and no others: an address of this
// cluster would lead its Services to another tenant's pod.
func TestAttackM9(t *testing.T) {
	tr := empty(Options{Off: true, Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, ErrNoCounterpart: errNoCounterpart})
	if got, err := tr.ToLocal(netip.MustParseAddr("10.1.2.3")); err != nil || got.String() != "10.1.2.3" {
		t.Errorf("in the provider's network: %v, %v", got, err)
	}
	for _, text := range []string{"10.200.0.5", "127.0.0.1", "169.254.169.254", "::1", "::ffff:10.1.2.3"} {
		if got, err := tr.ToLocal(netip.MustParseAddr(text)); !errors.Is(err, errNoCounterpart) {
			t.Errorf("%s is believed: %v, %v", text, got, err)
		}
	}
	// Our own addresses are as they are.
	if got, err := tr.ToRemote(netip.MustParseAddr("10.200.0.5")); err != nil || got.String() != "10.200.0.5" {
		t.Errorf("our pod: %v, %v", got, err)
	}
}

// TestRequestsExpire: a request no longer counts when its address is mapped, or after requestExpiry. Otherwise one process could request only
// maxMappings addresses in its life.
func TestRequestsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := empty(Options{ClusterID: "milan-id", ErrNoCounterpart: errNoCounterpart})
		tr.tunnel = &netv1alpha1.TunnelEndpointSpec{}
		address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}) }
		requests := func(i int) bool {
			_, _ = tr.ToRemote(address(i))
			select {
			case got := <-tr.requests:
				return got == address(i)
			default:
				return false
			}
		}
		for i := range maxMappings {
			if !requests(i) {
				t.Fatalf("address %d is not requested", i)
			}
		}
		if requests(maxMappings) {
			t.Error("one too many is requested")
		}
		tr.mappingChanged(nil, &netv1alpha1.IPMapping{Spec: netv1alpha1.IPMappingSpec{Address: address(0).String()}})
		if !requests(maxMappings) {
			t.Error("one is mapped, and no other is requested")
		}
		if requests(maxMappings + 1) {
			t.Error("one too many is requested after one was mapped")
		}
		time.Sleep(2 * requestExpiry) // of the bubble's clock
		if !requests(maxMappings+1) || !requests(1) {
			t.Error("expired requests still count, or are not repeated")
		}
		if len(tr.requested) != 2 {
			t.Errorf("%d requests are remembered", len(tr.requested))
		}
	})
}
