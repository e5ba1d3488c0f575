// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/test/env"
)

// fault is something that goes wrong while traffic runs.
type fault struct {
	name string
	long bool // only in the long run
	// cut makes it happen, mend ends it, hold later. What mends itself has no mend.
	cut, mend func(t *testing.T)
	hold      time.Duration
	// off chooses the node that is off meanwhile, without whose own traffic the fault is looked at.
	off     func(t *testing.T) *env.Node
	without *env.Node
	// gap is the longest that requests may stand still, and half of what a connection may; 0: as long as the cause is there. TCP waits twice as
	// long before each attempt, so a connection may need as long again as the network did.
	gap time.Duration
	// heal is how soon after the end of the cause all is well.
	heal time.Duration
	// mute waits until clusters that could say nothing do so again, if the fault kept them from it.
	mute func(t *testing.T)
	// streams: no connection may break.
	streams bool
}

// outage is what a fault cost.
type outage struct {
	fault                string
	lanes                int
	requests, stream     time.Duration // the longest gap of each kind
	lost, broken, struck int           // requests lost, connections broken, pairs of pods that had a gap
	ours, ourStream      time.Duration // the longest gap of each kind, without the time in which traffic within a cluster stood still, too
	beside               time.Duration // the longest gap of traffic within a cluster
	heal                 time.Duration // from the end of the cause to the last answer that was missing
	ourHeal              time.Duration // the same, without that time
	healed               bool
}

// truthful is how long a cluster may say Established although packets are lost.
const truthful = 10 * time.Second

// ahead is how much sooner than the first request a probe may come through, so that a cluster says Established again.
const ahead = time.Second

// stalls is how long pods of one cluster may not reach each other, as nobody has a processor; three seconds were seen.
const stalls = 15 * time.Second

// settling is how long a fault may take to heal before it is given up.
const settling = 90 * time.Second

// faults lets them happen one after the other, with traffic between all nodes.
func faults(t *testing.T, lanes int) {
	traffic := startFlows(t)
	said := followSayings(t)
	var table []outage
	defer func() { report(table) }()
	for _, f := range allFaults(lanes) {
		if (f.long && !*long) || !chosen(f.name) {
			continue
		}
		if !t.Run(f.name, func(t *testing.T) { table = append(table, f.happen(t, lanes, traffic, said)) }) && !traffic.flowing(t, settling, nil, "requests") {
			t.Fatal("traffic does not flow any more")
		}
	}
}

// happen lets one fault happen.
func (f fault) happen(t *testing.T, lanes int, traffic *flows, said *sayings) outage {
	// One thing goes wrong at a time: what the fault before took away is there again.
	whole := map[int]string{1: "lane 0 up", 2: "lane 0, 1 up"}[lanes]
	for _, pair := range directions() {
		env.Eventually(t, settling, pair[0].Name+" says that all lanes to "+pair[1].Name+" are up", func() (string, bool) {
			view, err := pair[0].See(pair[1])
			return fmt.Sprintf("%s (%v)", view.Lanes, err), view.Lanes == whole
		})
	}
	ways(t, lanes)
	// The fault before has left it flowing, or it has just begun.
	if len(traffic.silent(nil, "requests", "stream")) > 0 && !traffic.flowing(t, settling, nil, "requests", "stream") {
		t.Fatal("traffic does not flow before the fault")
	}
	if f.off != nil {
		f.without = f.off(t)
		traffic.leave(f.without)
	}
	before := traffic.state()
	began := time.Now()
	f.cut(t)
	cut := time.Now()
	if f.hold > 0 {
		<-time.After(f.hold) // the length of the fault: nothing is waited for
	}
	if f.mend != nil {
		f.mend(t)
	}
	ended := time.Now()
	healed := traffic.flowing(t, settling, f.without, "requests")
	o := f.cost(lanes, traffic, before, began, ended)
	o.healed = healed
	f.judge(t, o, traffic, said, began)
	t.Logf("%+v (the command took %v)", o, cut.Sub(began).Round(time.Millisecond))
	if t.Failed() {
		explain(t, traffic, began)
	}
	// Nothing stays broken: the node that was off counts again, and every cluster says so.
	if f.without != nil || len(traffic.silent(nil, "stream")) > 0 && !traffic.flowing(t, 5*time.Second, nil, "stream") {
		traffic.anew(t)
		if !traffic.flowing(t, settling, nil, "requests", "stream") {
			t.Fatal("traffic does not flow after the fault")
		}
	}
	for _, pair := range directions() {
		established(t, pair[0], pair[1], 30*time.Second)
	}
	if f.mute != nil {
		f.mute(t)
	}
	return o
}

// ways waits until every node leads packets to every lane of all peers: one whose watch broke off while its API server was away may hear of a
// lane half a minute later than the others, and cannot change over to it.
func ways(t *testing.T, lanes int) {
	t.Helper()
	for _, pair := range directions() {
		view := see(t, pair[0], pair[1])
		address := valid(t)(view.Mapped(netip.MustParsePrefix(string(view.Spec.RemoteExternalCIDR)).Addr()))
		for lane := range lanes {
			address = address.Next()
			for _, node := range pair[0].Nodes {
				env.Eventually(t, settling, fmt.Sprintf("%s leads to lane %d of %s", node.Name, lane, pair[1].Name), func() (string, bool) {
					said := node.Net().Try("ip", "route", "show", "table", "18952")
					return said.String(), strings.Contains(said.Out, address.String()+" via ")
				})
			}
		}
	}
}

// cost sums up the gaps since the fault began.
func (f fault) cost(lanes int, traffic *flows, before map[flow]tally, began, ended time.Time) outage {
	o := outage{fault: f.name, lanes: lanes}
	struck := map[[2]*env.Node]bool{}
	for _, g := range traffic.since(began) {
		if g.flow.touches(f.without) {
			continue
		}
		if g.flow.kind == "beside" {
			o.beside = max(o.beside, g.length())
			continue
		}
		ours := g.length() - traffic.stalled(g.from, g.to, f.without)
		struck[[2]*env.Node{g.flow.from, g.flow.to}] = true
		if g.flow.kind == "stream" {
			o.stream, o.ourStream = max(o.stream, g.length()), max(o.ourStream, ours)
			continue
		}
		o.requests, o.ours = max(o.requests, g.length()), max(o.ours, ours)
		o.heal = max(o.heal, g.to.Sub(ended))
		o.ourHeal = max(o.ourHeal, g.to.Sub(ended)-traffic.stalled(ended, g.to, f.without))
	}
	o.struck = len(struck)
	for which, now := range traffic.state() {
		if was, known := before[which]; known && !which.touches(f.without) && which.kind != "beside" {
			o.lost += now.Lost - was.Lost
			o.broken += now.Broken - was.Broken
		}
	}
	return o
}

func (f fault) judge(t *testing.T, o outage, traffic *flows, said *sayings, began time.Time) {
	t.Helper()
	if !o.healed {
		t.Errorf("it does not heal within %v", settling)
	}
	if f.gap > 0 && (o.ours > f.gap || o.ourStream > 2*f.gap) {
		t.Errorf("requests stood still for %v, a connection for %v, and while pods of one cluster reached each other for %v and %v; want at most %v and %v",
			o.requests, o.stream, o.ours, o.ourStream, f.gap, 2*f.gap)
	}
	if f.heal > 0 && o.ourHeal > f.heal {
		t.Errorf("it took %v after the cause ended, and %v while pods of one cluster reached each other; want at most %v", o.heal, o.ourHeal, f.heal)
	}
	if o.beside > stalls { // so long no machine is busy: it is we who have taken the clusters' own network away
		t.Errorf("pods of one cluster did not reach each other for %v", o.beside)
	}
	if f.streams && o.broken > 0 {
		t.Errorf("%d connections broke, want none", o.broken)
	}
	for _, g := range traffic.since(began) {
		if g.flow.kind != "requests" || g.flow.touches(f.without) || g.length() < truthful {
			continue
		}
		stood := traffic.stalled(g.from, g.to, f.without) // while the machine stands still nobody says anything
		for _, pair := range [][2]*env.Cluster{{g.flow.from.Cluster, g.flow.to.Cluster}, {g.flow.to.Cluster, g.flow.from.Cluster}} {
			if f.without != nil && pair[0] == f.without.Cluster {
				continue // its controller manager may have been on that node, and then nobody is there to say anything
			}
			if lied := said.lied(pair, g.from.Add(truthful+stood), g.to.Add(-ahead)); lied > 0 {
				t.Errorf("%s said for %v that the network to %s is Established, while %v was silent for %v",
					pair[0].Name, lied.Round(time.Millisecond), pair[1].Name, g.flow, g.length().Round(time.Millisecond))
			}
		}
	}
}

// explain tells which flows stood still and when, and what gateways and nodes did meanwhile.
func explain(t *testing.T, traffic *flows, began time.Time) {
	t.Helper()
	var text strings.Builder
	for _, g := range traffic.since(began) {
		if g.length() >= time.Second {
			fmt.Fprintf(&text, "\n      %v stood still from %.1f s to %.1f s", g.flow, g.from.Sub(began).Seconds(), g.to.Sub(began).Seconds())
		}
	}
	for _, c := range clusters.Clusters {
		said := c.TryKubectl("", "-n", "liqo", "logs", "-l", agents, "--prefix", "--tail=-1", "--since-time="+began.Add(-10*time.Second).UTC().Format(time.RFC3339))
		fmt.Fprintf(&text, "\n    %s:\n%s", c.Name, said)
	}
	t.Logf("it began at %s%s", began.UTC().Format(time.TimeOnly), &text)
}

// report prints the table for docs/benchmarks.md, and keeps it for the end of the run.
func report(table []outage) {
	if len(table) == 0 {
		return
	}
	var text strings.Builder
	text.WriteString("outages\n  | fault | lanes | longest gap, requests | longest gap, stream | both without the machine's own | streams broken | requests lost | pairs struck | healed after the cause ended |\n  |---|---|---|---|---|---|---|---|---|\n")
	for _, o := range table {
		heal := fmt.Sprintf("%.2f s", max(0, o.heal).Seconds())
		if !o.healed {
			heal = "**not**"
		}
		fmt.Fprintf(&text, "  | %s | %d | %.2f s | %.2f s | %.2f, %.2f s | %d | %d | %d of %d | %s |\n",
			o.fault, o.lanes, o.requests.Seconds(), o.stream.Seconds(), max(0, o.ours).Seconds(), max(0, o.ourStream).Seconds(), o.broken, o.lost, o.struck, wanted(), heal)
	}
	clusters.Report(text.String())
}

// gateways are the pods of a cluster's gateways, in the order of their lanes.
func gateways(c *env.Cluster) ([]env.Pod, error) {
	all, err := c.Pods("liqo", map[string]string{gatewayLabel: gatewayActive})
	slices.SortFunc(all, func(a, b env.Pod) int { return strings.Compare(a.Labels[laneLabel], b.Labels[laneLabel]) })
	return all, err
}

// gateway is the gateway of a lane as it is now.
func gateway(t *testing.T, c *env.Cluster, lane int) (found env.Pod) {
	t.Helper()
	// Its lane may be up before its kubelet has said that it is Ready.
	env.Eventually(t, 2*time.Minute, fmt.Sprintf("%s has a gateway of lane %d that is Ready", c.Name, lane), func() (string, bool) {
		all, err := gateways(c)
		for _, pod := range all {
			if pod.Labels[laneLabel] == strconv.Itoa(lane) || len(all) == 1 {
				found = pod
				return "", true
			}
		}
		return fmt.Sprint(all, err), false
	})
	return found
}

// nodeUp waits until a node and all that runs on it are back.
func nodeUp(t *testing.T, node *env.Node) {
	t.Helper()
	c := node.Cluster
	netted := func(pod env.Pod) error { _, err := pod.Net(); return err }
	runs := func(pod env.Pod) error { _, err := pod.Process("liqo"); return err }
	env.Eventually(t, 3*time.Minute, node.Name+" and its pods are back", func() (string, bool) {
		for _, args := range [][]string{
			{"wait", "node/" + node.Name, "--for=condition=Ready", "--timeout=60s"},
			{"-n", "liqo", "rollout", "status", "daemonset/liqo-route", "--timeout=60s"},
			{"-n", env.Namespace, "rollout", "status", "daemonset/server", "--timeout=60s"},
			{"-n", "liqo", "wait", "deployment", "-l", gatewayLabel, "--for=condition=Available", "--timeout=60s"},
		} {
			if said := c.TryKubectl("", args...); said.Code != 0 && !strings.Contains(said.Err, "no matching resources") {
				return said.String(), false
			}
		}
		// What Kubernetes says of pods may date from before the node was off, until it says for a moment that they are not Ready.
		for _, want := range []struct {
			what  string
			pods  func() ([]env.Pod, error)
			least int
			lives func(env.Pod) error
		}{
			{"servers", c.Servers, len(c.Nodes), netted},
			{"liqo-route", func() ([]env.Pod, error) { return c.Pods("liqo", map[string]string{labels.AppComponent: "route"}) }, len(c.Nodes), runs},
			{"gateways", func() ([]env.Pod, error) { return gateways(c) }, 1, runs},
		} {
			all, err := want.pods()
			if err != nil || len(all) < want.least {
				return fmt.Sprintf("%d pods of %s, want %d: %v", len(all), want.what, want.least, err), false
			}
			for _, pod := range all {
				if err := want.lives(pod); err != nil {
					return err.Error(), false
				}
			}
		}
		return "", true
	})
}
