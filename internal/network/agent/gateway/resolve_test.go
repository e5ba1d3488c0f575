// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/plan/carriers"
)

func TestResolver(t *testing.T) {
	type answer struct {
		addresses []netip.Addr
		err       error
	}
	answers, changed := make(chan answer), make(chan struct{}, 1)
	r := &resolver{changed: func() { changed <- struct{}{} }, lookup: func(ctx context.Context, name string) ([]netip.Addr, error) {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("a lookup without an end")
		}
		if name != "gw.milan.example." {
			t.Errorf("%s is looked up; search domains must not apply", name)
		}
		got := <-answers
		return got.addresses, got.err
	}}
	addresses := func(at time.Time, trouble bool) (all []string, err error) {
		found, err := r.addresses(at, "gw.milan.example", trouble)
		for _, address := range found {
			all = append(all, address.String())
		}
		return all, err
	}
	now := began
	if got, err := addresses(now, true); got != nil || err != nil {
		t.Errorf("before an answer: %v %v", got, err)
	}
	answers <- answer{addresses: []netip.Addr{
		netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("203.0.113.8"),
	}}
	<-changed
	want := []string{"203.0.113.8", "203.0.113.9", "2001:db8::1"}
	for _, trouble := range []bool{false, true} { // without trouble no further query, with trouble not at once
		if got, err := addresses(now.Add(time.Second), trouble); cmp.Diff(want, got) != "" || err != nil {
			t.Errorf("%v %v", got, err)
		}
	}
	now = now.Add(time.Hour)
	if got, _ := addresses(now, false); cmp.Diff(want, got) != "" {
		t.Errorf("an hour later: %v", got)
	}
	if got, _ := addresses(now, true); cmp.Diff(want, got) != "" {
		t.Errorf("while asking again: %v", got)
	}
	broken := errors.New("no such host")
	answers <- answer{err: broken}
	<-changed
	if got, err := addresses(now.Add(time.Second), true); cmp.Diff(want, got) != "" || !errors.Is(err, broken) {
		t.Errorf("a failure keeps what was known: %v %v", got, err)
	}

	for _, host := range []string{"127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "::1", "::ffff:127.0.0.1", "255.255.255.255", "fe80::1"} {
		if got, err := r.addresses(now, host, true); err == nil {
			t.Errorf("%s is dialled as %v", host, got)
		}
	}
	if got, err := r.addresses(now, "::ffff:203.0.113.1", true); err != nil || got[0].String() != "203.0.113.1" {
		t.Errorf("%v %v", got, err)
	}
}

// No tunnel leads through a tunnel, and no name of a peer resolves to this cluster.
func TestOffLimits(t *testing.T) {
	off := carriers.OffLimitsOf(plan.Snapshot{
		Local: plan.Cluster{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16")}, External: netip.MustParsePrefix("10.70.0.0/16")},
		Nodes: []plan.Node{{Address: netip.MustParseAddr("192.168.1.11")}},
		Peers: []plan.Peer{{RemotePods: netip.MustParsePrefix("10.11.0.0/16"), RemoteExternal: netip.MustParsePrefix("10.71.0.0/16")}},
	}, false)
	for address, want := range map[string][2]bool{ // refused as an address, and behind a name
		"10.11.0.1": {true, true}, "10.71.0.1": {true, true}, "10.10.3.4": {false, true}, "10.70.0.1": {false, true},
		"192.168.1.11": {false, true}, "192.168.1.12": {false, false}, "203.0.113.1": {false, false},
	} {
		one := netip.MustParseAddr(address)
		if got := [2]bool{off.Refuse(one, address) != nil, off.Refuse(one, "gw.milan.example") != nil}; got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
	off.Private = true
	for address, refused := range map[string]bool{"192.168.1.12": true, "172.20.0.1": true, "100.64.0.1": true, "242.1.0.1": true, "203.0.113.1": false} {
		if err := off.Refuse(netip.MustParseAddr(address), address); (err != nil) != refused {
			t.Errorf("%s, without private endpoints: %v", address, err)
		}
	}
	off.Private = false
	g := newBare()
	g.resolver = &resolver{}
	l := laneInputs{elsewhere: func(string) bool { return false }, off: off, endpoints: []agent.Endpoint{{Kind: "UDP", Host: "10.11.0.1", Port: 5871}}}
	known, lane := &peer{tunnel: newTunnel()}, &plan.PeerLane{Keys: []string{"k"}}
	g.observeLane(began, known, lane, l)
	if lane.Endpoint.IsValid() || lane.Dial != 0 || known.problem == "" {
		t.Errorf("lane %+v, problem %q", lane, known.problem)
	}
	for where, want := range map[string]int{"203.0.113.1:1": 0, "10.11.0.1:1": 1} { // it has roamed
		g.tunnel = map[string]host.TunnelPeer{"k": {Endpoint: netip.MustParseAddrPort(where)}}
		known.tunnel = newTunnel()
		if g.observeLane(began, known, lane, l); lane.Dial != want {
			t.Errorf("roamed to %s: dial %d, want %d", where, lane.Dial, want)
		}
	}
}

// The number of names looked up for a peer is bounded, and names that it no longer uses are forgotten.
func TestFewNames(t *testing.T) {
	g := newBare()
	asked := make(chan string, 4*maxNames)
	g.resolver = &resolver{changed: func() {}, lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
		asked <- name
		return nil, nil
	}}
	var l laneInputs
	for i := range 3 * maxNames {
		l.endpoints = append(l.endpoints, agent.Endpoint{Kind: "UDP", Host: string(rune('a'+i)) + ".example", Port: 1})
	}
	g.targets(began, l, true)
	if n := len(g.resolver.names); n != maxNames {
		t.Errorf("%d names", n)
	}
	g.resolver.keep(map[string]agent.PeerView{"milan": {Endpoints: map[int][]agent.Endpoint{0: l.endpoints[:1], 1: l.endpoints}}}, 0)
	if n := len(g.resolver.names); n != 1 {
		t.Errorf("%d names are kept", n)
	}
}
