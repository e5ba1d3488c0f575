// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"
	"testing"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/keyring"
)

// testKey returns a public key.
func testKey(n byte) string {
	key := [keyring.Size]byte{n, 1, 2, 3}
	return base64.StdEncoding.EncodeToString(key[:])
}

func testClaim() *netv1alpha1.NetworkConfig {
	return &netv1alpha1.NetworkConfig{Spec: netv1alpha1.NetworkConfigSpec{
		Cluster: netv1alpha1.ClusterIdentity{ClusterID: "rome-id"}, PodCIDR: "10.1.0.0/16", ExternalCIDR: "10.2.0.0/16", BackendType: "wireguard",
		EndpointIP: "203.0.113.7", BackendConfig: map[string]string{"publicKey": testKey(1), "port": "5871"},
		Lanes: []netv1alpha1.Lane{
			{Number: 1, PublicKey: testKey(2)},
			{Number: 0, PublicKey: testKey(1), Carriers: []netv1alpha1.Carrier{
				{Type: "Pigeon", Addresses: []string{"the roof"}},
				{Type: "UDP", Addresses: []string{"203.0.113.7", "gw.example.com"}, Port: 5871},
			}},
		},
	}}
}

// TestAttackNL6: a peer announces a WebSocket at another path than that of a gateway, so that our gateway would send requests to any web server.
func TestAttackNL6(t *testing.T) {
	for path, accepted := range map[string]bool{
		"/liqo/lane-1": true, "/tunnel/lane-1": true, "/lane-1": true,
		"/api/v1/shutdown": false, "/liqo/lane-0": false, "/liqo/lane-1/shutdown": false, "/": false, "": false, "/liqo/lane-11": false, "/x?/lane-1": false,
	} {
		for _, kind := range []string{netv1alpha1.CarrierWebSocket, netv1alpha1.CarrierPlainWebSocket} {
			claimed := testClaim()
			claimed.Spec.Lanes = []netv1alpha1.Lane{
				{Number: 1, PublicKey: testKey(1), Carriers: []netv1alpha1.Carrier{{Type: kind, Addresses: []string{"192.168.7.7"}, Port: 8080, Path: path}}},
			}
			if _, refused := Read(claimed, "rome-id", nil); (refused == nil) != accepted {
				t.Errorf("%s at %q: %+v", kind, path, refused)
			}
		}
	}
}

func TestReadClaim(t *testing.T) {
	got, refused := Read(testClaim(), "rome-id", nil)
	if refused != nil {
		t.Fatal(refused)
	}
	if got.Pods.String() != "10.1.0.0/16" || got.External.String() != "10.2.0.0/16" ||
		len(got.Lanes) != 2 || got.Lanes[0].Number != 0 || len(got.Lanes[0].Carriers) != 1 {
		t.Errorf("%+v", got)
	}
	within := testClaim()
	within.Spec.Lanes[1].Carriers[1].Addresses[1] = "10.1.3.4" // its own network, which is seen as another one
	if got, refused = Read(within, "rome-id", nil); refused != nil || got.Lanes[0].Carriers[0].Addresses[1] != "10.1.3.4" {
		t.Errorf("a gateway in its own network: %+v, %v", got, refused)
	}
	within.Spec.Lanes[1].Carriers[1].Addresses = []string{"10.200.0.1", "203.0.113.7", "10.200.0.2"} // what is another host here is left out
	if got, refused = Read(within, "rome-id", []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}); refused != nil ||
		!slices.Equal(got.Lanes[0].Carriers[0].Addresses, []string{"203.0.113.7"}) {
		t.Errorf("a gateway at three addresses: %+v, %v", got, refused)
	}
	documented := testClaim()
	documented.Spec.Lanes = nil
	if got, refused = Read(documented, "rome-id", nil); refused != nil || len(got.Lanes) != 1 ||
		got.Lanes[0].Carriers[0].Addresses[0] != "203.0.113.7" || got.Lanes[0].Carriers[0].Port != 5871 {
		t.Errorf("without lanes: %+v, %v", got, refused)
	}
	documented.Spec.EndpointIP = ""
	if got, refused = Read(documented, "rome-id", nil); refused != nil || len(got.Lanes[0].Carriers) > 0 {
		t.Errorf("not reachable: %+v, %v", got, refused)
	}
}

func TestClaimRefused(t *testing.T) {
	many := func(n int) (all []string) {
		for range n {
			all = append(all, "203.0.113.7")
		}
		return all
	}
	carrier := func(c *netv1alpha1.NetworkConfigSpec) *netv1alpha1.Carrier { return &c.Lanes[1].Carriers[1] }
	for name, row := range map[string]struct {
		change func(*netv1alpha1.NetworkConfigSpec)
		reason string
	}{
		"another's":      {func(s *netv1alpha1.NetworkConfigSpec) { s.Cluster.ClusterID = "" }, netv1alpha1.ReasonWrongDestination},
		"backend":        {func(s *netv1alpha1.NetworkConfigSpec) { s.BackendType = "ipsec" }, netv1alpha1.ReasonBackendUnknown},
		"host bits":      {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "10.1.0.1/16" }, netv1alpha1.ReasonNetworkInvalid},
		"IPv6":           {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "fd00::/64" }, netv1alpha1.ReasonNetworkInvalid},
		"empty":          {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "" }, netv1alpha1.ReasonNetworkInvalid},
		"None":           {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "None" }, netv1alpha1.ReasonNetworkInvalid},
		"one pod":        {func(s *netv1alpha1.NetworkConfigSpec) { s.PodCIDR = "10.1.0.1/32" }, netv1alpha1.ReasonNetworkInvalid},
		"too small":      {func(s *netv1alpha1.NetworkConfigSpec) { s.ExternalCIDR = "10.2.0.0/29" }, netv1alpha1.ReasonNetworkInvalid},
		"no lane at all": {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes, s.BackendConfig = nil, nil }, netv1alpha1.ReasonLaneInvalid},
		"no port":        {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes = nil; s.BackendConfig["port"] = "x" }, netv1alpha1.ReasonLaneInvalid},
		"port 0":         {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes = nil; s.BackendConfig["port"] = "0" }, netv1alpha1.ReasonLaneInvalid},
		"nine lanes": {func(s *netv1alpha1.NetworkConfigSpec) {
			for i := range 9 {
				s.Lanes = append(s.Lanes, netv1alpha1.Lane{Number: int32(i), PublicKey: testKey(byte(10 + i))})
			}
		}, netv1alpha1.ReasonLaneInvalid},
		"negative":     {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].Number = -1 }, netv1alpha1.ReasonLaneInvalid},
		"lane 8":       {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].Number = 8 }, netv1alpha1.ReasonLaneInvalid},
		"same number":  {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].Number = 0 }, netv1alpha1.ReasonLaneInvalid},
		"same key":     {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].PublicKey = testKey(1) }, netv1alpha1.ReasonLaneInvalid},
		"zero key":     {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].PublicKey = strings.Repeat("A", 43) + "=" }, netv1alpha1.ReasonLaneInvalid},
		"short key":    {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].PublicKey = "AAAA" }, netv1alpha1.ReasonLaneInvalid},
		"long key":     {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].PublicKey = strings.Repeat("A", 1<<16) }, netv1alpha1.ReasonLaneInvalid},
		"line breaks":  {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].PublicKey = testKey(9) + "\n" }, netv1alpha1.ReasonLaneInvalid},
		"bits unused":  {func(s *netv1alpha1.NetworkConfigSpec) { s.Lanes[0].PublicKey = strings.Repeat("A", 42) + "B=" }, netv1alpha1.ReasonLaneInvalid},
		"loopback":     {func(s *netv1alpha1.NetworkConfigSpec) { carrier(s).Addresses[1] = "127.0.0.1" }, netv1alpha1.ReasonLaneInvalid},
		"our pods":     {func(s *netv1alpha1.NetworkConfigSpec) { carrier(s).Addresses = []string{"10.200.3.4", "10.200.3.5"} }, netv1alpha1.ReasonLaneInvalid},
		"no domain":    {func(s *netv1alpha1.NetworkConfigSpec) { carrier(s).Addresses[1] = "gw" }, netv1alpha1.ReasonLaneInvalid},
		"a Service":    {func(s *netv1alpha1.NetworkConfigSpec) { carrier(s).Addresses[1] = "kube-dns.kube-system" }, netv1alpha1.ReasonLaneInvalid},
		"ours by name": {func(s *netv1alpha1.NetworkConfigSpec) { carrier(s).Addresses[1] = "kubernetes.default" }, netv1alpha1.ReasonLaneInvalid},
		"no addresses": {func(s *netv1alpha1.NetworkConfigSpec) { carrier(s).Addresses = nil }, netv1alpha1.ReasonLaneInvalid},
		"17 addresses": {func(s *netv1alpha1.NetworkConfigSpec) { carrier(s).Addresses = many(17) }, netv1alpha1.ReasonLaneInvalid},
		"big port":     {func(s *netv1alpha1.NetworkConfigSpec) { carrier(s).Port = 65536 }, netv1alpha1.ReasonLaneInvalid},
		"nine carriers": {func(s *netv1alpha1.NetworkConfigSpec) {
			for range 8 {
				s.Lanes[0].Carriers = append(s.Lanes[0].Carriers, *carrier(s), *carrier(s))
			}
		}, netv1alpha1.ReasonLaneInvalid},
	} {
		claimed := testClaim()
		row.change(&claimed.Spec)
		_, refused := Read(claimed, "rome-id", []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")})
		if refused == nil || refused.Reason != row.reason || refused.Message == "" || len(refused.Message) > 300 {
			t.Errorf("%s: %+v, want %s", name, refused, row.reason)
		}
	}
}

func TestReadAnswer(t *testing.T) {
	for _, row := range []struct{ pods, external, want string }{
		{"None", "None", "10.1.0.0/16 10.2.0.0/16"},
		{"10.9.0.0/16", "None", "10.9.0.0/16 10.2.0.0/16"},
		{"None", "10.1.0.0/16", ""}, // both the same
		{"10.9.0.0/17", "None", ""},
		{"10.9.0.1/16", "None", ""},
		{"", "None", ""},
		{"none", "None", ""},
		{"127.0.0.0/16", "None", ""},
		{"fd00::/16", "None", ""},
	} {
		ours := testClaim()
		ours.Status.PodCIDRNAT, ours.Status.ExternalCIDRNAT = row.pods, row.external
		pods, external, err := ReadAnswer(ours)
		if got := pods.String() + " " + external.String(); (err == nil) != (row.want != "") || err == nil && got != row.want {
			t.Errorf("%s, %s: %s, %v", row.pods, row.external, got, err)
		}
	}
}

// FuzzClaim: for any NetworkConfig, an accepted claim has the promised form, and nothing panics.
func FuzzClaim(f *testing.F) {
	f.Add("10.1.0.0/16", "10.2.0.0/16", "203.0.113.7", testKey(1), "5871", int32(0))
	f.Add("::/0", "10.2.0.0/33", "localhost", "=", "-1", int32(-1))
	inside := netip.MustParsePrefix("10.200.0.0/16")
	f.Fuzz(func(t *testing.T, pods, external, address, key, port string, number int32) {
		claimed := testClaim()
		claimed.Spec.PodCIDR, claimed.Spec.ExternalCIDR, claimed.Spec.EndpointIP = netv1alpha1.CIDR(pods), netv1alpha1.CIDR(external), address
		claimed.Spec.BackendConfig = map[string]string{"publicKey": key, "port": port}
		if number != 0 {
			claimed.Spec.Lanes[0] = netv1alpha1.Lane{
				Number: number, PublicKey: key, Carriers: []netv1alpha1.Carrier{{Type: "UDP", Addresses: []string{address}, Port: number}},
			}
		} else {
			claimed.Spec.Lanes = nil
		}
		got, refused := Read(claimed, "rome-id", []netip.Prefix{inside})
		if refused != nil {
			if len(refused.Message) > 400 {
				t.Errorf("%d bytes of refusal", len(refused.Message))
			}
			return
		}
		if !got.Pods.Addr().Is4() || got.Pods != got.Pods.Masked() || got.Pods.Bits() < 1 || len(got.Lanes) == 0 {
			t.Errorf("accepted: %+v", got)
		}
		for _, lane := range got.Lanes {
			for _, carrier := range lane.Carriers {
				for _, one := range carrier.Addresses {
					if ip, err := netip.ParseAddr(one); err == nil && (inside.Contains(ip) || ip.IsLoopback()) {
						t.Errorf("accepted: %s", one)
					}
				}
			}
		}
	})
}

// TestClaimOfFamilies: a peer states its networks in fields, in rows, or in both. One that states two different things is refused, whichever of them
// a reader would use.
func TestClaimOfFamilies(t *testing.T) {
	four := netv1alpha1.Networks{PodCIDR: "10.1.0.0/16", ExternalCIDR: "10.2.0.0/16"}
	six := netv1alpha1.Networks{PodCIDR: "fd00:1::/48", ExternalCIDR: "fd00:2::/48"}
	for name, row := range map[string]struct {
		edit func(*netv1alpha1.NetworkConfigSpec)
		why  string
	}{
		"both":         {func(s *netv1alpha1.NetworkConfigSpec) { s.SetRows([]netv1alpha1.Networks{four}) }, ""},
		"two families": {func(s *netv1alpha1.NetworkConfigSpec) { s.SetRows([]netv1alpha1.Networks{four, six}) }, ""},
		"rows only": {func(s *netv1alpha1.NetworkConfigSpec) {
			s.SetRows([]netv1alpha1.Networks{four, six})
			s.PodCIDR, s.ExternalCIDR = "", ""
		}, ""},
		"another network in the fields": {func(s *netv1alpha1.NetworkConfigSpec) {
			s.SetRows([]netv1alpha1.Networks{four})
			s.PodCIDR = "10.9.0.0/16"
		}, "is not what podCIDR and externalCIDR are"},
		"a row without a signature": {func(s *netv1alpha1.NetworkConfigSpec) { s.Networks = []netv1alpha1.Networks{four, six} }, "not signed"},
		"IPv6 first":                {func(s *netv1alpha1.NetworkConfigSpec) { s.SetRows([]netv1alpha1.Networks{six, four}) }, "only IPv4 so far"},
	} {
		claimed := testClaim()
		row.edit(&claimed.Spec)
		got, refused := Read(claimed, "rome-id", nil)
		switch {
		case row.why == "" && (refused != nil || got.Pods.String() != "10.1.0.0/16" || got.External.String() != "10.2.0.0/16"):
			t.Errorf("%s: %+v, %+v", name, got, refused)
		case row.why != "" && (refused == nil || refused.Reason != netv1alpha1.ReasonNetworkInvalid || !strings.Contains(refused.Message, row.why)):
			t.Errorf("%s: %+v, want %q", name, refused, row.why)
		}
	}
}
