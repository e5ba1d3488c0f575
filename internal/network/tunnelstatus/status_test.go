// SPDX-License-Identifier: Apache-2.0

package tunnelstatus

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/claim"
	"liqo.io/liqo/internal/network/pace"
	"liqo.io/liqo/internal/network/report"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// testFacts: two lanes in both clusters, two nodes, all well, nothing written yet.
func testFacts() *Facts {
	f := &Facts{
		Tunnel: &netv1alpha1.TunnelEndpoint{
			ObjectMeta: metav1.ObjectMeta{Generation: 3},
			Spec: netv1alpha1.TunnelEndpointSpec{
				ClusterIdentity: netv1alpha1.ClusterIdentity{ClusterID: "milan-id", ClusterName: "milan"},
				RemotePodCIDR:   "10.1.0.0/16", RemoteNATPodCIDR: "10.9.0.0/16", RemoteExternalCIDR: "10.2.0.0/16", RemoteNATExternalCIDR: "None",
				Lanes: []netv1alpha1.Lane{{Number: 0}, {Number: 1}},
			},
		},
		Lanes: []int{0, 1}, Ready: []string{"n1", "n2"}, Now: noon, Namespace: "liqo", Observations: map[int]report.Observation{},
	}
	for lane := range 2 {
		f.Observations[lane] = report.Observation{
			Lane: lane, Pod: fmt.Sprintf("gateway-%d", lane), Address: fmt.Sprintf("10.200.0.%d", lane), At: noon.Add(-300 * time.Millisecond),
			Reported: report.Gateway{Lane: lane, Peers: []report.Peer{{ClusterID: "else"}, {
				ClusterID: "milan-id", Up: true, RTTMicroseconds: 1500, SilentMilliseconds: 100, HandshakeSeconds: 20, Endpoint: "203.0.113.7:5871",
				RemoteKey: "key", MTU: 1420 - lane,
				Nodes: []report.Node{{Name: "n1", Lane: 0, SilentMilliseconds: 80}, {Name: "n2", Lane: 1, SilentMilliseconds: 90}},
			}}},
		}
	}
	return f
}

func (f *Facts) change(lane int, change func(*report.Observation, *report.Peer)) {
	h := f.Observations[lane]
	change(&h, &h.Reported.Peers[1])
	f.Observations[lane] = h
}

func both(f *Facts, to func(*report.Observation, *report.Peer)) {
	f.change(0, to)
	f.change(1, to)
}

func TestTunnelStatus(t *testing.T) {
	down := func(silent int64) func(*report.Observation, *report.Peer) {
		return func(_ *report.Observation, p *report.Peer) { p.Up, p.SilentMilliseconds = false, silent }
	}
	for name, row := range map[string]struct {
		change  func(*Facts)
		was     netv1alpha1.ConnectionStatus
		want    netv1alpha1.ConnectionStatus
		reason  string
		message string
	}{
		"well":       {func(*Facts) {}, "", netv1alpha1.Connected, netv1alpha1.ReasonConnected, "lane 0, 1 up"},
		"well again": {func(*Facts) {}, netv1alpha1.ConnectionError, netv1alpha1.Connected, netv1alpha1.ReasonConnected, ""},
		"one lane only": {
			func(f *Facts) { f.change(1, down(9000)) }, "", netv1alpha1.Connected, netv1alpha1.ReasonDegraded,
			"lane 0 up; lane 1: the handshake with 203.0.113.7:5871 succeeded",
		},
		"a lane of ours": {func(f *Facts) { f.Lanes = []int{1} }, "", netv1alpha1.Connected, netv1alpha1.ReasonConnected, "lane 1 up"},
		"a node without a report": {
			func(f *Facts) { f.Ready = append(f.Ready, "n3") }, "", netv1alpha1.Connected, netv1alpha1.ReasonDegraded, "no report from node n3",
		},
		"a node long silent": {func(f *Facts) {
			both(f, func(_ *report.Observation, p *report.Peer) { p.Nodes[1].SilentMilliseconds = 5000 })
			f.BadSince = noon.Add(-lostGrace)
		}, netv1alpha1.Connected, netv1alpha1.ConnectionError, netv1alpha1.ReasonNodesCutOff, "no gateway receives reports from node n2"},
		"a node long silent, and the gateways are new": {func(f *Facts) {
			both(f, func(_ *report.Observation, p *report.Peer) { p.Nodes[1].SilentMilliseconds = -1 })
			f.Lost = []string{"n2"}
		}, netv1alpha1.ConnectionError, netv1alpha1.ConnectionError, netv1alpha1.ReasonNodesCutOff, "no gateway receives reports from node n2"},
		"a node without an agent": {
			func(f *Facts) { f.Ready = append(f.Ready, "n3") }, netv1alpha1.ConnectionError, netv1alpha1.Connected, netv1alpha1.ReasonDegraded,
			"node n3",
		},
		"no node reports": {func(f *Facts) {
			both(f, func(_ *report.Observation, p *report.Peer) {
				p.Nodes[0].SilentMilliseconds, p.Nodes[1].SilentMilliseconds = 6000, -1
			})
		}, netv1alpha1.ConnectionError, netv1alpha1.ConnectionError, netv1alpha1.ReasonNodesCutOff, "UDP 4879"},
		"a node not Ready cut off": {func(f *Facts) {
			f.Ready = []string{"n1"}
			both(f, func(_ *report.Observation, p *report.Peer) { p.Nodes[1].Lane = -1 })
		}, "", netv1alpha1.Connected, netv1alpha1.ReasonConnected, ""},
		"the later word of a node": {func(f *Facts) {
			f.change(0, func(_ *report.Observation, p *report.Peer) { p.Nodes[1].Lane = -1 })
			f.change(1, func(_ *report.Observation, p *report.Peer) { p.Nodes[1].SilentMilliseconds = 10 })
		}, "", netv1alpha1.Connected, netv1alpha1.ReasonConnected, ""},
		"nodes cut off": {func(f *Facts) {
			both(f, func(_ *report.Observation, p *report.Peer) { p.Nodes[0].Lane, p.Nodes[1].Lane = -1, -1 })
		}, "", netv1alpha1.Connecting, netv1alpha1.ReasonNodesCutOff, "nodes n1, n2"},
		"no lane in common": {func(f *Facts) { f.Lanes = []int{5} }, "", netv1alpha1.Connecting, netv1alpha1.ReasonNoCommonLane, "both clusters"},
		"no gateway":        {func(f *Facts) { f.Observations = nil }, "", netv1alpha1.Connecting, netv1alpha1.ReasonGatewaySilent, "lane 0: no gateway pod runs"},
		"silent gateways": {
			func(f *Facts) { both(f, func(h *report.Observation, _ *report.Peer) { h.Silent = true }) }, "", netv1alpha1.Connecting,
			netv1alpha1.ReasonGatewaySilent, "gateway-0 at 10.200.0.0",
		},
		"not made yet": {
			func(f *Facts) { both(f, func(h *report.Observation, _ *report.Peer) { h.Reported.Peers = nil }) }, "", netv1alpha1.Connecting,
			netv1alpha1.ReasonGatewayFailed, "not created the tunnel",
		},
		"error": {func(f *Facts) {
			both(f, func(h *report.Observation, p *report.Peer) {
				p.Up, h.Reported.Error = false, "no device: "+strings.Repeat("x", 5000)
			})
		}, "", netv1alpha1.Connecting, netv1alpha1.ReasonGatewayFailed, "no device"},
		"problem": {func(f *Facts) {
			both(f, func(_ *report.Observation, p *report.Peer) {
				p.Up, p.Problem = false, "gw.example.com is unknown to DNS"
			})
		}, "", netv1alpha1.Connecting, netv1alpha1.ReasonGatewayFailed, "unknown to DNS"},
		"no handshake": {func(f *Facts) {
			both(f, func(_ *report.Observation, p *report.Peer) { p.Up, p.HandshakeSeconds = false, -1 })
		}, "", netv1alpha1.Connecting, netv1alpha1.ReasonNoHandshake, "no handshake with 203.0.113.7:5871; UDP may be blocked"},
		"neither side dials": {func(f *Facts) {
			both(f, func(_ *report.Observation, p *report.Peer) { p.Up, p.HandshakeSeconds, p.Endpoint = false, -1, "" })
		}, "", netv1alpha1.Connecting, netv1alpha1.ReasonNoHandshake, "liqo.io/override-address"},
		"lost long ago": {
			func(f *Facts) { both(f, down(6000)) }, netv1alpha1.Connected, netv1alpha1.ConnectionError, netv1alpha1.ReasonProbesLost,
			"probes do not come back",
		},
		"old handshake": {func(f *Facts) {
			both(f, func(_ *report.Observation, p *report.Peer) { p.Up, p.HandshakeSeconds = false, 181 })
		}, netv1alpha1.ConnectionError, netv1alpha1.ConnectionError, netv1alpha1.ReasonNoHandshake, "older than 180 s"},
		"still an error": {func(f *Facts) { both(f, down(100)) }, netv1alpha1.ConnectionError, netv1alpha1.ConnectionError, netv1alpha1.ReasonProbesLost, ""},
	} {
		f := testFacts()
		f.Tunnel.Status.Connection.Status = row.was
		row.change(f)
		got, _, _ := Of(f)
		c := meta.FindStatusCondition(got.Conditions, netv1alpha1.ConditionConnected)
		if c == nil || got.Connection.Status != row.want || c.Reason != row.reason || !strings.Contains(c.Message, row.message) ||
			(c.Status == metav1.ConditionTrue) != (row.want == netv1alpha1.Connected) || got.Connection.StatusMessage != c.Message || len(c.Message) > 1000 {
			t.Errorf("%s: %s, %+v; want %s %s %q", name, got.Connection.Status, c, row.want, row.reason, row.message)
			continue
		}
		// A minute later the status is the same, although all ages have changed.
		f.Tunnel.Status = got
		f.Now = f.Now.Add(time.Minute)
		for lane, h := range f.Observations {
			h.At = h.At.Add(time.Minute)
			for i := range h.Reported.Peers {
				h.Reported.Peers[i].RTTMicroseconds += 300
			}
			f.Observations[lane] = h
		}
		if later, _, _ := Of(f); !equality.Semantic.DeepEqual(later, got) {
			t.Errorf("%s: a minute later %+v, before %+v", name, later, got)
		}
	}
}

// TestLoss: a loss becomes an error after lostGrace, counted from when it happened.
func TestLoss(t *testing.T) {
	f := testFacts()
	f.Tunnel.Status, _, _ = Of(f)
	both(f, func(_ *report.Observation, p *report.Peer) { p.Up, p.SilentMilliseconds = false, 2700 }) // three seconds before now
	status, since, requeueAfter := Of(f)
	if !equality.Semantic.DeepEqual(status, f.Tunnel.Status) || !since.Equal(noon.Add(-3*time.Second)) || requeueAfter != time.Second {
		t.Errorf("at once: %+v, since %s, again after %s", status.Connection, since, requeueAfter)
	}
	f.BadSince, f.Now = since, noon.Add(requeueAfter)
	if status, _, requeueAfter = Of(f); status.Connection.Status != netv1alpha1.ConnectionError || requeueAfter != 0 {
		t.Errorf("four seconds after the loss: %+v, again %s", status.Connection, requeueAfter)
	}
	// The old description stays, because it shows what was in use.
	if status.Connection.MTU != 1419 || status.Connection.PeerConfiguration["endpointIP"] != "203.0.113.7" {
		t.Errorf("%+v", status.Connection)
	}

	f = testFacts()
	f.Tunnel.Status, _, _ = Of(f)
	both(f, func(_ *report.Observation, p *report.Peer) { p.Nodes[0].Lane = -1 }) // the lanes work, a node does not
	if _, since, requeueAfter = Of(f); !since.Equal(noon) || requeueAfter != lostGrace {
		t.Errorf("a node: since %s, again %s", since, requeueAfter)
	}
	f.Observations = testFacts().Observations
	f.BadSince = since
	if status, since, _ = Of(f); !since.IsZero() || !equality.Semantic.DeepEqual(status, f.Tunnel.Status) {
		t.Errorf("back within the time: since %s, %+v", since, status)
	}
}

func TestLatencyIsRewrittenIfItMatters(t *testing.T) {
	f := testFacts()
	f.Tunnel.Status, _, _ = Of(f)
	if got := f.Tunnel.Status.Connection.Latency; got.Value != "1.5ms" || !got.Timestamp.Time.Equal(noon) {
		t.Fatalf("%+v", got)
	}
	for _, row := range []struct {
		rtt  int64
		want string
	}{
		{2000, "1.5ms"},
		{2400, "1.5ms"},
		{0, "1.5ms"},
		{700, "1.5ms"},
		{2600, "2.6ms"},
		{1400, "2.6ms"},
		{1200, "1.2ms"},
		{1000, "1.2ms"},
		{50, "50µs"},
		{900, "50µs"},
	} {
		f.change(0, func(_ *report.Observation, p *report.Peer) { p.RTTMicroseconds = row.rtt })
		f.Now = f.Now.Add(latencyRest)
		f.Tunnel.Status, _, _ = Of(f)
		if got := f.Tunnel.Status.Connection.Latency.Value; got != row.want {
			t.Errorf("%d µs: %s, want %s", row.rtt, got, row.want)
		}
	}
	f.Now = f.Now.Add(latencyRest)
	for _, rtt := range []int64{20_000, 900_000, 400} { // only the first is written: peaks of a busy machine do not count
		f.change(0, func(_ *report.Observation, p *report.Peer) { p.RTTMicroseconds = rtt })
		f.Now = f.Now.Add(time.Second)
		f.Tunnel.Status, _, _ = Of(f)
		if got := f.Tunnel.Status.Connection.Latency.Value; got != "20ms" {
			t.Errorf("%d µs: %s, want 20ms", rtt, got)
		}
	}
}

func TestReadyReportsRefusal(t *testing.T) {
	f := testFacts()
	f.Refused = &claim.Refusal{Reason: netv1alpha1.ReasonNetworkInvalid, Message: "0.0.0.0/0 is every address"}
	got, _, _ := Of(f)
	c := meta.FindStatusCondition(got.Conditions, netv1alpha1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != netv1alpha1.ReasonNetworkInvalid || c.ObservedGeneration != 3 {
		t.Errorf("%+v", c)
	}
	if got.Connection.Status != netv1alpha1.Connected {
		t.Errorf("the previous agreement still works, but the connection is %+v", got.Connection)
	}
}

// TestUsable: the connection stays usable while few nodes are cut off, and the message names them; most of them make it unusable.
func TestUsable(t *testing.T) {
	nodes := func(f *Facts, all, cut int) {
		f.Ready = nil
		var views []report.Node
		for i := range all {
			view := report.Node{Name: fmt.Sprintf("n%03d", i), Lane: 0, SilentMilliseconds: 10}
			if i < cut {
				view.Lane = -1
			}
			f.Ready, views = append(f.Ready, view.Name), append(views, view)
		}
		both(f, func(_ *report.Observation, p *report.Peer) { p.Nodes = views })
	}
	for _, row := range []struct {
		all, cut int
		usable   bool
	}{{1, 0, true}, {1, 1, false}, {2, 1, true}, {2, 2, false}, {3, 1, true}, {3, 2, false}, {100, 1, true}, {100, 50, true}, {100, 51, false}} {
		f := testFacts()
		f.Tunnel.Status, _, _ = Of(f)
		nodes(f, row.all, row.cut)
		f.BadSince = noon.Add(-lostGrace)
		got, _, _ := Of(f)
		usable := meta.FindStatusCondition(got.Conditions, netv1alpha1.ConditionUsable)
		if (usable.Status == metav1.ConditionTrue) != row.usable || (got.Connection.Status == netv1alpha1.Connected) != (row.cut == 0) ||
			len(usable.Message) > 200 || len(got.Connection.StatusMessage) > 400 {
			t.Errorf("%d of %d cut off: %+v, %+v", row.cut, row.all, usable, got.Connection)
		}
		if row.cut > 0 && (!strings.Contains(usable.Message, fmt.Sprintf("%d of %d", row.all-row.cut, row.all)) ||
			!strings.Contains(got.Connection.StatusMessage, "n000")) {
			t.Errorf("%d of %d cut off: messages %q, %q", row.cut, row.all, usable.Message, got.Connection.StatusMessage)
		}
	}

	// Getting worse from there also needs lostGrace; getting better is reported at once.
	f := testFacts()
	f.Tunnel.Status, _, _ = Of(f)
	nodes(f, 4, 1)
	f.BadSince = noon.Add(-lostGrace)
	f.Tunnel.Status, _, _ = Of(f)
	if f.BadSince = (time.Time{}); writtenHealth(&f.Tunnel.Status) != partial {
		t.Fatalf("%+v", f.Tunnel.Status)
	}
	nodes(f, 4, 4)
	status, since, requeueAfter := Of(f)
	if writtenHealth(&status) != partial || !since.Equal(noon) || requeueAfter != lostGrace {
		t.Errorf("all cut off, at once: %+v, since %s, again %s", status.Conditions, since, requeueAfter)
	}
	f.BadSince, f.Now = since, noon.Add(lostGrace)
	if f.Tunnel.Status, _, _ = Of(f); writtenHealth(&f.Tunnel.Status) != none {
		t.Errorf("all cut off: %+v", f.Tunnel.Status)
	}
	nodes(f, 4, 2)
	if f.Tunnel.Status, _, _ = Of(f); writtenHealth(&f.Tunnel.Status) != partial {
		t.Errorf("half of them back: %+v", f.Tunnel.Status)
	}
	nodes(f, 4, 0)
	if status, since, _ = Of(f); writtenHealth(&status) != whole || !since.IsZero() {
		t.Errorf("all back: %+v, since %s", status, since)
	}
	both(f, func(_ *report.Observation, p *report.Peer) { p.Up, p.SilentMilliseconds = false, 6000 })
	if status, _, _ = Of(f); writtenHealth(&status) != none {
		t.Errorf("no lane up: %+v", status)
	}
}

// TestMTU: a smaller MTU counts at once, a larger one after it has stood.
func TestMTU(t *testing.T) {
	var memory pace.Memory[int32]
	used := int32(0)
	for i, step := range []struct {
		at             int // seconds
		measured, want int32
	}{
		{0, 1400, 1400},
		{1, 1420, 1420},
		{2, 1300, 1300},
		{3, 1420, 1300},
		{4, 1280, 1280},
		{5, 1420, 1280},
		{64, 1420, 1280},
		{65, 1420, 1420},
		{70, 1420, 1420},
		{200, 1440, 1440},
	} {
		used, memory = settleMTU(memory, used, step.measured, noon.Add(time.Duration(step.at)*time.Second))
		if used != step.want {
			t.Errorf("step %d: %d is used, want %d", i, used, step.want)
		}
	}
}

// TestAttackFlappingStatus counts how often in an hour the status of a tunnel is written, and nodes get another MTU, while the peer's gateway changes
// its address, drops large packets, or stops to answer on one lane, twice a second. What matters is never late.
func TestAttackFlappingStatus(t *testing.T) {
	for name, row := range map[string]struct {
		change func(f *Facts, odd bool)
		most   int
	}{
		"address": {func(f *Facts, odd bool) {
			both(f, func(_ *report.Observation, p *report.Peer) {
				p.Endpoint = map[bool]string{true: "203.0.113.8:1", false: "203.0.113.9:2"}[odd]
			})
		}, pace.StatusBurst + int(time.Hour/pace.StatusPause)},
		"lane": {
			func(f *Facts, odd bool) { f.change(0, func(_ *report.Observation, p *report.Peer) { p.Up = odd }) },
			pace.StatusBurst + int(time.Hour/pace.StatusPause),
		},
		"MTU": {func(f *Facts, odd bool) {
			both(f, func(_ *report.Observation, p *report.Peer) { p.MTU = map[bool]int{true: 1280, false: 1400}[odd] })
		}, 2},
	} {
		limiter, f := pace.NewStatusLimiter(), testFacts()
		f.Tunnel.Status, _, _ = Of(f)
		writes, mtus, odd := 0, 0, false
		for f.Now = noon; f.Now.Before(noon.Add(time.Hour)); f.Now = f.Now.Add(500 * time.Millisecond) {
			odd = !odd
			row.change(f, odd)
			status, _, _ := Of(f)
			if equality.Semantic.DeepEqual(&status, &f.Tunnel.Status) || CanWait(&f.Tunnel.Status, &status) && !limiter.Allow("milan", f.Now) {
				continue
			}
			writes++
			if status.Connection.MTU != f.Tunnel.Status.Connection.MTU {
				mtus++
			}
			f.Tunnel.Status = status
		}
		t.Logf("%s: %d writes in an hour, %d of them change the MTU", name, writes, mtus)
		if writes > row.most || writes == 0 || mtus > 2 {
			t.Errorf("%s: %d writes in an hour, want at most %d; %d of them change the MTU", name, writes, row.most, mtus)
		}
		both(f, func(_ *report.Observation, p *report.Peer) { p.Up = false })
		f.BadSince = f.Now.Add(-lostGrace)
		if status, _, _ := Of(f); status.Connection.Status != netv1alpha1.ConnectionError || CanWait(&f.Tunnel.Status, &status) {
			t.Errorf("%s: a loss is reported late: %+v", name, status.Connection)
		}
	}
}
