// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/apis/labels"
	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	sharingv1alpha1 "liqo.io/liqo/apis/sharing/v1alpha1"
)

const (
	direct, inside = "https://192.0.2.9", discoveryv1alpha1.AuthURLInside
	// proxied and moved are in the network of the peer, elsewhere is not; invitation is the proxy of an invitation.
	proxied, moved = "http://a:b@10.9.0.7:8118", "http://a:b@10.9.0.8:8118"
	elsewhere      = "http://a:b@169.254.169.254:8118"
	invitation     = "http://a:b@invitation.invalid:8118"
)

// tunnel leads to the network 10.9.0.0/16.
func tunnel(up bool) *netv1alpha1.TunnelEndpoint {
	made := &netv1alpha1.TunnelEndpoint{Spec: netv1alpha1.TunnelEndpointSpec{RemoteExternalCIDR: "10.9.0.0/16", RemoteNATExternalCIDR: netv1alpha1.NotRemapped}}
	status := metav1.ConditionFalse
	if up {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&made.Status.Conditions, metav1.Condition{Type: netv1alpha1.ConditionUsable, Status: status, Reason: "Test"})
	return made
}

func request(answer string) *sharingv1alpha1.ResourceSlice {
	return &sharingv1alpha1.ResourceSlice{Status: sharingv1alpha1.ResourceSliceStatus{ProxyURL: answer}}
}

func copied(authURL, proxyURL string) []sharingv1alpha1.ResourceSlice {
	return []sharingv1alpha1.ResourceSlice{{Spec: sharingv1alpha1.ResourceSliceSpec{AuthURL: authURL, ProxyURL: proxyURL}}}
}

func cluster(inBand bool, discovery, authURL, proxyURL string) *discoveryv1alpha1.ForeignCluster {
	fc := &discoveryv1alpha1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labels.DiscoveryType: discovery}}}
	fc.Spec.PeeringType, fc.Spec.ForeignAuthURL, fc.Spec.ForeignProxyURL, fc.Spec.ClusterKey = discoveryv1alpha1.OutOfBand, authURL, proxyURL, "key"
	if inBand {
		fc.Spec.PeeringType = discoveryv1alpha1.InBand
	}
	return fc
}

// TestFor: every combination of type, address, proxy, tunnel, invitation, answer to our request and what has answered has one way.
func TestFor(t *testing.T) {
	t.Parallel()
	type tunnels string
	const none, down, up tunnels = "none", "down", "up"
	n, kinds := 0, map[Kind]int{}
	for _, inBand := range []bool{false, true} {
		for _, authURL := range []string{"", direct, inside} {
			for _, proxyURL := range []string{"", proxied, moved, elsewhere} {
				for _, way := range []tunnels{none, down, up} {
					for _, invited := range []bool{false, true} {
						for _, answer := range []string{"", proxied, elsewhere} {
							for _, reached := range []struct{ answers, unreachable bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
								for _, ending := range []bool{false, true} {
									fc := cluster(inBand, labels.DiscoveryManual, authURL, proxyURL)
									seen := Seen{FC: fc, Request: request(answer), Outgoing: true, Answers: reached.answers, Unreachable: reached.unreachable}
									if ending {
										fc.DeletionTimestamp = new(metav1.Now())
									}
									if way != none {
										seen.Tunnel = tunnel(way == up)
									}
									if invited = invited && inBand; invited { // only an in-band provider invites
										seen.Invitation = invitation
									}
									// What is taken over of the answer: the first proxy, or another one if nothing is reached.
									proxy := proxyURL
									if inBand && way == up && answer == proxied && !ending && (proxyURL == "" || !reached.answers && reached.unreachable) {
										proxy = answer
									}
									want := Direct
									switch {
									case invited && proxy == "":
										want = Invited
									case !inBand && authURL != inside:
									case authURL == "" || proxy == "" || way != up || proxy == elsewhere:
										want = Wait
									default:
										want = Inside
									}
									got := For(seen)
									n++
									kinds[got.Kind]++
									through := proxy
									if want == Invited {
										through = invitation
									}
									second := want == Direct && way == up && answer == proxied
									if got.Kind != want || (got.Why != "") != (want == Wait) || got.Spec != (Address{authURL, proxy}) || got.Proxy != through ||
										second != (got.Second == Address{inside, proxied}) || second == (got.NoSecond != "") {
										t.Errorf(
											"in-band %t, %q through %q, tunnel %s, invited %t, answer %q, %+v, ending %t: %+v, want %s", inBand, authURL, proxyURL, way,
											invited, answer, reached, ending, got, want,
										)
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if n != 2*3*4*3*2*3*4*2 || len(kinds) != 4 {
		t.Errorf("%d combinations of the kinds %v", n, kinds)
	}
}

// TestWait: an administrator reads what a way waits for.
func TestWait(t *testing.T) {
	t.Parallel()
	for want, seen := range map[string]Seen{
		"proxy is not known": {FC: cluster(true, labels.DiscoveryManual, inside, "")},
		"is not up":          {FC: cluster(true, labels.DiscoveryManual, inside, proxied), Tunnel: tunnel(false)},
		"http://HOST:8118 in the network 10.9.0.0/16": {FC: cluster(true, labels.DiscoveryManual, inside, elsewhere), Tunnel: tunnel(true)},
	} {
		if got := For(seen); got.Kind != Wait || !strings.Contains(got.Why, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

// TestWay: a provider reaches its consumer directly as long as that works, and through the tunnel otherwise, but never through a proxy elsewhere.
func TestWay(t *testing.T) {
	t.Parallel()
	joined := tunnel(false)
	for name, row := range map[string]struct {
		now, offer  Address
		tunnel      *netv1alpha1.TunnelEndpoint
		unreachable bool
		want        Address
	}{
		"nothing":                            {Address{}, Address{}, joined, false, Address{}},
		"an address":                         {Address{}, Address{direct, ""}, joined, false, Address{direct, ""}},
		"both":                               {Address{}, Address{direct, proxied}, joined, false, Address{direct, ""}},
		"both, and the address works":        {Address{direct, ""}, Address{direct, proxied}, joined, false, Address{direct, ""}},
		"both, and the address does not":     {Address{direct, ""}, Address{direct, proxied}, joined, true, Address{inside, proxied}},
		"another address than the one tried": {Address{"https://192.0.2.8", ""}, Address{direct, proxied}, joined, true, Address{direct, ""}},
		"unreachable, and no proxy":          {Address{direct, ""}, Address{direct, ""}, joined, true, Address{direct, ""}},
		"unreachable, and no tunnel":         {Address{direct, ""}, Address{direct, proxied}, nil, true, Address{direct, ""}},
		"a proxy only":                       {Address{}, Address{"", proxied}, joined, false, Address{inside, proxied}},
		"a proxy only, and no tunnel yet":    {Address{}, Address{"", proxied}, nil, false, Address{}},
		"a proxy elsewhere":                  {Address{}, Address{"", elsewhere}, joined, false, Address{}},
		"a proxy elsewhere, unreachable":     {Address{direct, ""}, Address{direct, "http://a:b@127.0.0.1:8118"}, joined, true, Address{direct, ""}},
		"inside already":                     {Address{inside, proxied}, Address{direct, proxied}, joined, false, Address{inside, proxied}},
		"inside, moved":                      {Address{inside, proxied}, Address{direct, moved}, joined, true, Address{inside, moved}},
		"inside, moved, and the last works":  {Address{inside, proxied}, Address{direct, moved}, joined, false, Address{inside, proxied}},
		"inside, in another network now":     {Address{inside, "http://a:b@10.8.0.7:8118"}, Address{direct, moved}, joined, false, Address{inside, moved}},
		"inside, moved elsewhere":            {Address{inside, proxied}, Address{direct, "http://a:b@10.10.0.7:8118"}, joined, true, Address{direct, ""}},
		"inside, and the tunnel is away":     {Address{inside, proxied}, Address{direct, moved}, nil, true, Address{inside, proxied}},
		"inside, and nothing is offered":     {Address{inside, proxied}, Address{}, joined, false, Address{}},
		"an administrator's proxy": {
			Address{direct, "http://proxy.example.org:3128"}, Address{direct, proxied}, joined, false, Address{direct, "http://proxy.example.org:3128"},
		},
	} {
		seen := Seen{
			FC: cluster(false, labels.DiscoveryIncoming, row.now.AuthURL, row.now.ProxyURL), Copies: copied(row.offer.AuthURL, row.offer.ProxyURL),
			Tunnel: row.tunnel, Unreachable: row.unreachable,
		}
		if got := For(seen).Spec; got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
		for why, change := range map[string]func(*Seen){
			"an administrator's object": func(s *Seen) { s.FC.Labels[labels.DiscoveryType] = labels.DiscoveryManual },
			"no request":                func(s *Seen) { s.Copies = nil },
			"it ends":                   func(s *Seen) { s.FC.DeletionTimestamp = new(metav1.Now()) },
		} {
			other := seen
			other.FC = seen.FC.DeepCopy()
			change(&other)
			if got := For(other).Spec; got != row.now {
				t.Errorf("%s, and %s: it becomes %v", name, why, got)
			}
		}
		if seen.Outgoing = true; row.want.AuthURL == "" && For(seen).Spec != row.now {
			t.Errorf("%s: the last URL is given up while this cluster uses the other one", name)
		}
	}
	offer := offer(append(copied(inside, proxied), copied(direct, moved)...))
	if want := (Address{direct, proxied}); offer != want { // no peer chooses the name by which its proxy is asked
		t.Errorf("offered %v, want %v", offer, want)
	}
}

// TestSecondWay: a consumer goes through the tunnel to a provider that it reaches directly otherwise, and only where this cluster has placed that provider.
func TestSecondWay(t *testing.T) {
	t.Parallel()
	remapped := func(network, offered string) func(*Seen) {
		return func(s *Seen) { s.Tunnel.Spec.RemoteNATExternalCIDR, s.Request.Status.ProxyURL = network, offered }
	}
	for name, row := range map[string]struct {
		change func(*Seen)
		why    string
	}{
		"offered":              {func(*Seen) {}, ""},
		"remapped":             {remapped("10.77.0.0/16", "http://rome:pass@10.77.0.7:8118"), ""},
		"not asked for":        {func(s *Seen) { s.Request = nil }, "offers none"},
		"an older provider":    {func(s *Seen) { s.Request.Status.ProxyURL = "" }, "offers none"},
		"in-band":              {func(s *Seen) { s.FC.Spec.PeeringType = discoveryv1alpha1.InBand }, "first way already"},
		"in reverse":           {func(s *Seen) { s.FC.Spec.ForeignAuthURL = inside }, "first way already"},
		"no pinned key":        {func(s *Seen) { s.FC.Spec.ClusterKey = "" }, "no key"},
		"no tunnel":            {func(s *Seen) { s.Tunnel = nil }, "not up"},
		"a tunnel that is not": {func(s *Seen) { s.Tunnel.Status.Conditions[0].Status = metav1.ConditionFalse }, "not up"},
		"its own network":      {remapped("10.77.0.0/16", proxied), "its network 10.77.0.0/16"},
		"the metadata service": {remapped("None", elsewhere), "its network 10.9.0.0/16"},
		"another port":         {remapped("None", "http://rome:pass@10.9.0.7:6443"), "its network"},
		"a name":               {remapped("None", "http://rome:pass@10.9.0.7.example.org:8118"), "its network"},
	} {
		seen := Seen{FC: cluster(false, labels.DiscoveryManual, direct, ""), Request: request(proxied), Tunnel: tunnel(true), Outgoing: true}
		row.change(&seen)
		got := For(seen)
		if row.why == "" {
			if want := (Address{inside, seen.Request.Status.ProxyURL}); got.Second != want || got.NoSecond != "" {
				t.Errorf("%s: %+v, want %v", name, got, want)
			}
		} else if got.Second != (Address{}) || !strings.Contains(got.NoSecond, row.why) {
			t.Errorf("%s: %+v, want %q", name, got, row.why)
		}
	}
}

// TestLeadsInside: nothing is sent to a proxy that is not in the network of the peer, whatever URL the peer offers.
func TestLeadsInside(t *testing.T) {
	t.Parallel()
	plain := &netv1alpha1.TunnelEndpoint{Spec: netv1alpha1.TunnelEndpointSpec{RemoteExternalCIDR: "10.9.0.0/16", RemoteNATExternalCIDR: netv1alpha1.NotRemapped}}
	remapped := plain.DeepCopy()
	remapped.Spec.RemoteNATExternalCIDR = "10.77.0.0/16"
	for _, row := range []struct {
		url    string
		tunnel *netv1alpha1.TunnelEndpoint
		want   bool
	}{
		{"http://id:pass@10.9.0.7:8118", plain, true},
		{"http://10.9.255.255:8118", plain, true},
		{"http://id:pass@10.77.0.7:8118", remapped, true},
		{"http://id:pass@10.9.0.7:8118", remapped, false},
		{"http://id:pass@10.10.0.7:8118", plain, false},
		{"http://id:pass@169.254.169.254:8118", plain, false},
		{"http://127.0.0.1:8118", plain, false},
		{"http://10.9.0.7:443", plain, false},
		{"http://10.9.0.7", plain, false},
		{"https://10.9.0.7:8118", plain, false},
		{"http://10.9.0.7:8118/path", plain, false},
		{"http://10.9.0.7.example.org:8118", plain, false},
		{"http://10.9.0.7@evil.example:8118", plain, false},
		{"http://[::ffff:10.9.0.7]:8118", plain, false},
		{"http://kubernetes.default.svc:8118", plain, false},
		{"", plain, false},
		{"://", plain, false},
		{"http://10.9.0.7:8118", &netv1alpha1.TunnelEndpoint{}, false},
	} {
		if got := leadsInside(row.url, row.tunnel); got != row.want {
			t.Errorf("%q with %s: %v, want %v", row.url, external(row.tunnel), got, row.want)
		}
	}
}

// TestTunnelFirst: only an in-band peering waits for the tunnel, unless its provider has invited this cluster.
func TestTunnelFirst(t *testing.T) {
	t.Parallel()
	for want, changes := range map[bool][]func(*discoveryv1alpha1.ForeignCluster){
		true: {func(*discoveryv1alpha1.ForeignCluster) {}},
		false: {
			func(fc *discoveryv1alpha1.ForeignCluster) { fc.Spec.PeeringType = discoveryv1alpha1.OutOfBand },
			func(fc *discoveryv1alpha1.ForeignCluster) {
				fc.Annotations = map[string]string{labels.Invited: labels.True}
			},
		},
	} {
		for i, change := range changes {
			fc := cluster(true, labels.DiscoveryManual, inside, "")
			if change(fc); TunnelFirst(fc) != want {
				t.Errorf("change %d: it is not %v", i, want)
			}
		}
	}
}
