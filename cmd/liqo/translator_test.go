// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/offloading/reflection/project"
)

// TestTranslator: the arithmetic of the gateways, or none at all; never a guess.
func TestTranslator(t *testing.T) {
	changes := 0
	tr := &translator{
		peer: "milan-id", changed: func() { changes++ }, wanted: make(chan netip.Addr, 10),
		mapped: map[netip.Addr]*netv1alpha1.IPMapping{}, asked: map[netip.Addr]time.Time{},
	}
	address := netip.MustParseAddr
	if _, err := tr.ToLocal(address("10.1.2.3")); err == nil || errors.Is(err, project.ErrNoCounterpart) {
		t.Errorf("nothing is agreed: %v", err)
	}
	spec := netv1alpha1.TunnelEndpointSpec{
		ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: "milan-id"},
		LocalPodCIDR:    "10.10.0.0/16", LocalNATPodCIDR: "10.40.0.0/16", LocalExternalCIDR: "10.11.0.0/16", LocalNATExternalCIDR: "None",
		RemotePodCIDR: "10.10.0.0/16", RemoteNATPodCIDR: "10.30.0.0/16", RemoteExternalCIDR: "10.11.0.0/16", RemoteNATExternalCIDR: "10.31.0.0/16",
	}
	stranger := spec
	stranger.ClusterIdentity.ClusterID = "naples-id"
	tr.tunnelChanged(nil, &netv1alpha1.TunnelEndpoint{Spec: stranger})
	if changes != 0 {
		t.Error("the tunnel of another peer")
	}
	tr.tunnelChanged(nil, &netv1alpha1.TunnelEndpoint{Spec: spec})
	tr.tunnelChanged(nil, &netv1alpha1.TunnelEndpoint{Spec: spec})
	if changes != 1 {
		t.Errorf("told %d times", changes)
	}
	tr.tunnelChanged(&netv1alpha1.TunnelEndpoint{Spec: spec}, nil) // that it is gone says nothing
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
		case test.to == "" && !errors.Is(err, project.ErrNoCounterpart):
			t.Errorf("%s: %v, %v", test.from, got, err)
		case test.to != "" && (err != nil || got.String() != test.to):
			t.Errorf("%s: %v, %v", test.from, got, err)
		}
	}

	// An address outside of the pod network is asked for once, and used when the peer's is known.
	host := address("192.168.7.7")
	for range 3 {
		if _, err := tr.ToRemote(host); err == nil || errors.Is(err, project.ErrNoCounterpart) {
			t.Errorf("not known yet: %v", err)
		}
	}
	if len(tr.wanted) != 1 || <-tr.wanted != host {
		t.Error("asked for another number than once")
	}
	mapping := &netv1alpha1.IPMapping{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: netv1alpha1.IPMappingSpec{Address: host.String(), ClusterIDs: []string{"naples-id"}},
		Status: netv1alpha1.IPMappingStatus{PeerAddresses: map[string]string{"milan-id": "10.12.0.1"}},
	}
	tr.mappingChanged(nil, mapping)
	if _, err := tr.ToRemote(host); err == nil {
		t.Error("that of another peer is used")
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
	if _, err := tr.ToRemote(host); !errors.Is(err, project.ErrNoCounterpart) {
		t.Errorf("refused for good: %v", err)
	}

	tr.off = true
	if got, err := tr.ToLocal(address("10.1.2.3")); err != nil || got.String() != "10.1.2.3" {
		t.Errorf("without our network: %v, %v", got, err)
	}
}

// TestTranslatorAsksOn: who is asked for is forgotten when it is mapped, or when there was no answer for long. Else a thousand addresses would
// be all that one process ever asks for.
func TestTranslatorAsksOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &translator{
			peer: "milan-id", changed: func() {}, wanted: make(chan netip.Addr, mostMappings), tunnel: &netv1alpha1.TunnelEndpointSpec{},
			mapped: map[netip.Addr]*netv1alpha1.IPMapping{}, asked: map[netip.Addr]time.Time{},
		}
		address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}) }
		asks := func(i int) bool {
			_, _ = tr.ToRemote(address(i))
			select {
			case got := <-tr.wanted:
				return got == address(i)
			default:
				return false
			}
		}
		for i := range mostMappings {
			if !asks(i) {
				t.Fatalf("address %d is not asked for", i)
			}
		}
		if asks(mostMappings) {
			t.Error("one too many is asked for")
		}
		tr.mappingChanged(nil, &netv1alpha1.IPMapping{Spec: netv1alpha1.IPMappingSpec{Address: address(0).String()}})
		if !asks(mostMappings) {
			t.Error("one is mapped, and none is asked for in its place")
		}
		if asks(mostMappings + 1) {
			t.Error("one too many is asked for after one was mapped")
		}
		time.Sleep(2 * askedFor) // of the bubble's clock
		if !asks(mostMappings+1) || !asks(1) {
			t.Error("what was not answered for long holds the place of others, or is not asked for again")
		}
		if len(tr.asked) != 2 {
			t.Errorf("%d are remembered", len(tr.asked))
		}
	})
}
