// SPDX-License-Identifier: Apache-2.0

package translator

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	if len(tr.request) != 1 {
		t.Error("no mapping is requested")
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

// TestAttackM3: mappings have the ports of endpoints, are as many as the bound allows, and end with their last endpoint.
func TestAttackM3(t *testing.T) {
	a, b, c := netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("192.168.0.3")
	port := func(protocol corev1.Protocol, number int32) netv1alpha1.MappingPort {
		return netv1alpha1.MappingPort{Protocol: protocol, Port: number}
	}
	https, dns := port(corev1.ProtocolTCP, 443), port(corev1.ProtocolUDP, 53)
	mapping := func(name string, address netip.Addr, ports ...netv1alpha1.MappingPort) *netv1alpha1.IPMapping {
		return &netv1alpha1.IPMapping{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1alpha1.IPMappingSpec{Address: address.String(), Ports: ports}}
	}
	ours := func(m *netv1alpha1.IPMapping) bool { return m.Name == "ours" }
	type ports = map[netip.Addr][]netv1alpha1.MappingPort
	for name, row := range map[string]struct {
		endpoints      ports
		complete       bool
		mapped         map[netip.Addr]*netv1alpha1.IPMapping
		create, change ports
		unused         int
		left           []netip.Addr
	}{
		"new":      {endpoints: ports{a: {dns, https, dns}}, complete: true, create: ports{a: {https, dns}}},
		"as it is": {endpoints: ports{a: {dns, https}}, complete: true, mapped: map[netip.Addr]*netv1alpha1.IPMapping{a: mapping("ours", a, https, dns)}},
		"fewer ports": {
			endpoints: ports{a: {dns}}, complete: true, mapped: map[netip.Addr]*netv1alpha1.IPMapping{a: mapping("ours", a, https, dns)}, change: ports{a: {dns}},
		},
		"of an earlier version": {endpoints: ports{a: {dns}}, mapped: map[netip.Addr]*netv1alpha1.IPMapping{a: mapping("ours", a)}, change: ports{a: {dns}}},
		"an administrator's": {
			endpoints: ports{a: {dns}}, complete: true,
			mapped: map[netip.Addr]*netv1alpha1.IPMapping{a: mapping("by hand", a), b: mapping("by hand", b)},
		},
		"last endpoint gone": {complete: true, mapped: map[netip.Addr]*netv1alpha1.IPMapping{a: mapping("ours", a, dns)}, unused: 1},
		"not all known":      {mapped: map[netip.Addr]*netv1alpha1.IPMapping{a: mapping("ours", a, dns)}},
		"no port that counts": {
			endpoints: ports{a: {}, b: {port(corev1.ProtocolSCTP, 1)}, c: {port(corev1.ProtocolTCP, 0)}}, complete: true, left: []netip.Addr{a, b, c},
		},
	} {
		got := planMappings(row.endpoints, row.complete, row.mapped, ours)
		if len(got.create) != len(row.create) || len(got.change) != len(row.change) || len(got.unused) != row.unused || len(got.left) != len(row.left) ||
			!slices.Equal(got.create[a], row.create[a]) || !slices.Equal(got.change[a], row.change[a]) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	many, mapped := ports{}, map[netip.Addr]*netv1alpha1.IPMapping{}
	for i := range maxMappings + 5 {
		address := netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})
		many[address] = []netv1alpha1.MappingPort{https}
		if i < 10 {
			mapped[address] = mapping("ours", address, https)
		}
	}
	if got := planMappings(many, true, mapped, ours); len(got.create) != maxMappings-10 || len(got.left) != 5 {
		t.Errorf("%d are created, %d are left out", len(got.create), len(got.left))
	}
}

// TestOutside: endpoints in the pod network and addresses of no host need no mapping; the API server gets one when its address is asked for, and keeps it.
func TestOutside(t *testing.T) {
	server := netip.MustParseAddrPort("10.96.0.1:443")
	tr := empty(Options{ClusterID: "milan-id", APIServer: server, ErrNoCounterpart: errNoCounterpart})
	tr.tunnel = &netv1alpha1.TunnelNetworks{LocalPodCIDR: "10.10.0.0/16", LocalNATPodCIDR: "None"}
	https := []netv1alpha1.MappingPort{{Protocol: corev1.ProtocolTCP, Port: 443}}
	host := netip.MustParseAddr("192.168.0.1")
	endpoints := map[netip.Addr][]netv1alpha1.MappingPort{
		netip.MustParseAddr("10.10.1.2"): https, netip.MustParseAddr("127.0.0.1"): https, netip.MustParseAddr("fd00::1"): https, host: https,
	}
	if got := tr.outside(endpoints); len(got) != 1 || len(got[host]) != 1 {
		t.Errorf("%v", got)
	}
	if _, err := tr.ToRemote(server.Addr()); err == nil || errors.Is(err, errNoCounterpart) {
		t.Errorf("the API server: %v", err)
	}
	if len(tr.request) != 1 {
		t.Error("no mapping is requested")
	}
	if got := tr.outside(endpoints); !slices.Equal(got[server.Addr()], https) {
		t.Errorf("%v", got)
	}
	tr.serverAsked, tr.mapped[server.Addr()] = false, &netv1alpha1.IPMapping{} // another process asked
	if got := tr.outside(nil); !slices.Equal(got[server.Addr()], https) {
		t.Errorf("%v", got)
	}
	tr.left = map[netip.Addr]bool{host: true}
	if _, err := tr.ToRemote(host); !errors.Is(err, errNoCounterpart) {
		t.Errorf("an address that gets no mapping: %v", err)
	}
}

// TestTwoMappings: an administrator creates a mapping for an address that has one of ours. The address for the peer stays the same, whichever of the two is
// deleted the other one counts, and ours ends only when it does not.
func TestTwoMappings(t *testing.T) {
	host, ports := netip.MustParseAddr("192.168.7.7"), []netv1alpha1.MappingPort{{Protocol: corev1.ProtocolTCP, Port: 5432}}
	start := time.Unix(1e9, 0)
	mapping := func(name string, age time.Duration, to string) *netv1alpha1.IPMapping {
		made := &netv1alpha1.IPMapping{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start.Add(-age))},
			Spec:       netv1alpha1.IPMappingSpec{Address: host.String(), Ports: ports},
		}
		if to != "" {
			made.Status.PeerAddresses = map[string]string{"milan-id": to}
		}
		return made
	}
	refused := mapping("ours", time.Hour, "")
	refused.Status.Conditions = []metav1.Condition{{Type: netv1alpha1.ConditionReady, Status: metav1.ConditionFalse}}
	elsewhere := mapping("by-hand", time.Minute, "10.0.0.18")
	elsewhere.Spec.Address = "192.168.7.8"
	ours, byHand := mapping("ours", time.Hour, "10.0.0.17"), mapping("by-hand", time.Minute, "10.0.0.18")
	type event struct{ before, after *netv1alpha1.IPMapping }
	for name, row := range map[string]struct {
		events   []event
		want     string
		replaced int
	}{
		"both":                          {[]event{{nil, ours}, {nil, byHand}}, "10.0.0.17", 0},
		"both, listed the other way":    {[]event{{nil, byHand}, {nil, ours}}, "10.0.0.17", 0},
		"the administrator's is gone":   {[]event{{nil, ours}, {nil, byHand}, {byHand, nil}}, "10.0.0.17", 0},
		"it is one of another address":  {[]event{{nil, ours}, {nil, byHand}, {byHand, elsewhere}}, "10.0.0.17", 0},
		"ours is gone":                  {[]event{{nil, ours}, {nil, byHand}, {ours, nil}}, "10.0.0.18", 0},
		"ours was refused":              {[]event{{nil, refused}, {nil, byHand}}, "10.0.0.18", 1},
		"the administrator's was first": {[]event{{nil, mapping("by-hand", 2*time.Hour, "10.0.0.18")}, {nil, ours}}, "10.0.0.18", 1},
		"it has no address yet":         {[]event{{nil, mapping("by-hand", 2*time.Hour, "")}, {nil, ours}}, "10.0.0.17", 0},
		"both are gone":                 {[]event{{nil, ours}, {nil, byHand}, {ours, nil}, {byHand, nil}}, "", 0},
	} {
		tr := empty(Options{ClusterID: "milan-id", ErrNoCounterpart: errNoCounterpart})
		tr.tunnel = &netv1alpha1.TunnelNetworks{LocalPodCIDR: "10.10.0.0/16", LocalNATPodCIDR: "None"}
		for _, e := range row.events {
			tr.mappingChanged(object(e.before), object(e.after))
		}
		got, err := tr.ToRemote(host)
		if (err != nil) != (row.want == "") || err == nil && got.String() != row.want {
			t.Errorf("%s: %v, %v; want %q", name, got, err, row.want)
		}
		isOurs := func(m *netv1alpha1.IPMapping) bool { return m.Name == "ours" }
		if all := tr.replaced(isOurs); len(all) != row.replaced {
			t.Errorf("%s: %d of our mappings do not count, want %d", name, len(all), row.replaced)
		}
		if p := planMappings(map[netip.Addr][]netv1alpha1.MappingPort{host: ports}, true, tr.mapped, isOurs); (len(p.create) > 0) != (row.want == "") {
			t.Errorf("%s: created are %v", name, p.create)
		}
	}
}

// object is a mapping, or an interface without a value.
func object(mapping *netv1alpha1.IPMapping) client.Object {
	if mapping == nil {
		return nil
	}
	return mapping
}
