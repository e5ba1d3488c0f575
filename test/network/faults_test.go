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
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

// fault is a fault that the test causes while traffic runs.
type fault struct {
	name string
	long bool // only in the long run
	// start causes it, and end repairs it, hold later. A fault that ends without a repair has no end.
	start, end func(t *testing.T)
	hold       time.Duration
	// off chooses the node that is off during the fault. The fault is not judged by that node's own traffic.
	off     func(t *testing.T) *env.Node
	without *env.Node
	// gap is the target for the longest gap of requests, and half of the target for a connection; 0: traffic may stand still while the fault
	// lasts. TCP doubles the wait before each retransmission, so a connection may need as long again as the network did.
	gap time.Duration
	// heal is the target for the time from the end of the fault to the last missing answer.
	heal time.Duration
	// afterwards waits for the clusters that could report nothing during the fault.
	afterwards func(t *testing.T)
	// streams: no connection may break.
	streams bool
}

// outage is the measured effect of a fault.
type outage struct {
	fault            fault
	lanes            int
	lasted           time.Duration // from the start of the fault to its end
	requests, stream time.Duration // the longest gap of each kind
	local            time.Duration // the longest gap within a cluster
	lost, broken     int           // requests lost, connections broken
	hit              int           // pairs of nodes that had a gap
	heal             time.Duration // from the end of the fault to the last missing answer
	healed           bool
	stale            time.Duration // the longest time that a cluster reported Established while requests had no answer
}

const (
	// outageBound is the length from which a user calls a missing answer, or a false status, an outage. Only beyond it a fault fails the test:
	// shorter times are compared with their targets in the report, because they depend on the load of the machine as well.
	outageBound = 30 * time.Second
	// staleTarget is the target for how long a cluster may report Established while packets are lost.
	staleTarget = 10 * time.Second
	// probeAhead is how much earlier than the first request a probe may succeed, so that a cluster reports Established again.
	probeAhead = time.Second
)

// faults causes one fault after the other, with traffic between all nodes.
func faults(t *testing.T, lanes int) {
	traffic := startFlows(t)
	status := followStatus(t)
	var table []outage
	defer func() { printOutages(table) }()
	for _, f := range allFaults(lanes) {
		if f.long && !*long {
			continue
		}
		if !t.Run(f.name, func(t *testing.T) { table = append(table, f.inject(t, lanes, traffic, status)) }) && !traffic.flowing(t, env.Hang, nil, "requests") {
			t.Fatal("traffic does not flow any more")
		}
	}
}

// inject causes the fault, measures its effect, and restores traffic.
func (f fault) inject(t *testing.T, lanes int, traffic *flows, status *statusLog) outage {
	// One fault at a time: everything that the previous one broke must work again.
	whole := map[int]string{1: "lane 0 up", 2: "lane 0, 1 up"}[lanes]
	for _, pair := range directions() {
		env.Eventually(t, env.Hang, pair[0].Name+" reports all lanes to "+pair[1].Name+" up", func() (string, bool) {
			view, err := networks.See(pair[0], pair[1])
			return fmt.Sprintf("%s (%v)", view.Lanes, err), view.Lanes == whole
		})
	}
	routesComplete(t, lanes)
	if len(traffic.silent(nil, "requests", "stream")) > 0 && !traffic.flowing(t, env.Hang, nil, "requests", "stream") {
		t.Fatal("traffic does not flow before the fault")
	}
	if f.off != nil {
		f.without = f.off(t)
		traffic.stopOn(f.without)
	}
	before := traffic.state()
	start := time.Now()
	f.start(t)
	started := time.Now()
	if f.hold > 0 {
		<-time.After(f.hold) // the length of the fault, not a wait for an event
	}
	if f.end != nil {
		f.end(t)
	}
	ended := time.Now()
	healed := traffic.flowing(t, env.Hang, f.without, "requests")
	o := f.measure(lanes, traffic, before, start, ended)
	o.healed, o.stale = healed, traffic.stale(f.without, status, start)
	f.judge(t, o, traffic, status, start)
	t.Logf("%s (the command took %v)", o, started.Sub(start).Round(time.Millisecond))
	if t.Failed() {
		explain(t, traffic, start)
	}
	// Nothing stays broken: the node that was off counts again, and every cluster reports Established.
	if f.without != nil || len(traffic.silent(nil, "stream")) > 0 && !traffic.flowing(t, 5*time.Second, nil, "stream") {
		traffic.restart(t)
		if !traffic.flowing(t, env.Hang, nil, "requests", "stream") {
			t.Fatal("traffic does not flow after the fault")
		}
	}
	for _, pair := range directions() {
		established(t, pair[0], pair[1])
	}
	if f.afterwards != nil {
		f.afterwards(t)
	}
	return o
}

// routesComplete waits until every node has a route to every lane of all peers. A node agent whose watch broke while its API server was away
// may learn of a lane half a minute later than the others, and until then it cannot switch to that lane.
func routesComplete(t *testing.T, lanes int) {
	t.Helper()
	for _, pair := range directions() {
		view := see(t, pair[0], pair[1])
		address := valid(t)(view.Mapped(netip.MustParsePrefix(string(view.Spec.RemoteExternalCIDR)).Addr()))
		for lane := range lanes {
			address = address.Next()
			for _, node := range pair[0].Nodes {
				env.Eventually(t, env.Hang, fmt.Sprintf("%s has a route to lane %d of %s", node.Name, lane, pair[1].Name), func() (string, bool) {
					result := node.Net().Try("ip", "route", "show", "table", "18952")
					return result.String(), strings.Contains(result.Out, address.String()+" via ")
				})
			}
		}
	}
}

// measure sums up the gaps since the fault started.
func (f fault) measure(lanes int, traffic *flows, before map[flow]counts, start, ended time.Time) outage {
	o := outage{fault: f, lanes: lanes, lasted: ended.Sub(start)}
	hit := map[[2]*env.Node]bool{}
	for _, g := range traffic.since(start) {
		if g.flow.touches(f.without) {
			continue
		}
		if g.flow.kind == "local" {
			o.local = max(o.local, g.length())
			continue
		}
		hit[[2]*env.Node{g.flow.from, g.flow.to}] = true
		if g.flow.kind == "stream" {
			o.stream = max(o.stream, g.length())
			continue
		}
		o.requests = max(o.requests, g.length())
		o.heal = max(o.heal, g.to.Sub(ended))
	}
	o.hit = len(hit)
	for which, now := range traffic.state() {
		if was, known := before[which]; known && !which.touches(f.without) && which.kind != "local" {
			o.lost += now.Lost - was.Lost
			o.broken += now.Broken - was.Broken
		}
	}
	return o
}

// judge fails the test if the fault caused an outage, broke a connection that must survive, or made a cluster report a false status.
func (f fault) judge(t *testing.T, o outage, traffic *flows, status *statusLog, start time.Time) {
	t.Helper()
	if !o.healed {
		t.Errorf("requests have no answer %v after the fault", env.Hang)
	}
	allowed := outageBound
	if f.gap == 0 { // traffic may stand still while the fault lasts
		allowed += o.lasted
	}
	if o.requests > allowed || o.stream > 2*allowed {
		t.Errorf("requests had no answer for %v, a connection for %v; an outage is more than %v and %v", o.requests, o.stream, allowed, 2*allowed)
	}
	if o.heal > outageBound {
		t.Errorf("requests had no answer until %v after the end of the fault; an outage is more than %v", o.heal, outageBound)
	}
	if o.local > outageBound {
		t.Errorf("pods of one cluster did not reach each other for %v", o.local)
	}
	if f.streams && o.broken > 0 {
		t.Errorf("%d connections broke, want none", o.broken)
	}
	traffic.eachStale(f.without, start, func(g gap, pair [2]*env.Cluster) {
		if late := status.reportedEstablished(pair, g.from.Add(outageBound), g.to.Add(-probeAhead)); late > 0 {
			t.Errorf("%s reported for %v that the network to %s is Established, %v after the last answer on %v",
				pair[0].Name, late.Round(time.Millisecond), pair[1].Name, outageBound, g.flow)
		}
	})
}

// explain logs which flows stood still and when, and the logs of gateways and node agents.
func explain(t *testing.T, traffic *flows, start time.Time) {
	t.Helper()
	var text strings.Builder
	for _, g := range traffic.since(start) {
		if g.length() >= time.Second {
			fmt.Fprintf(&text, "\n      %v stood still from %.1f s to %.1f s", g.flow, g.from.Sub(start).Seconds(), g.to.Sub(start).Seconds())
		}
	}
	for _, c := range clusters.Clusters {
		result := c.TryKubectl("", "-n", "liqo", "logs", "-l", agents, "--prefix", "--tail=-1", "--since-time="+start.Add(-10*time.Second).UTC().Format(time.RFC3339))
		fmt.Fprintf(&text, "\n    %s:\n%s", c.Name, result)
	}
	t.Logf("the fault started at %s%s", start.UTC().Format(time.TimeOnly), &text)
}

// versus formats a measured time with its target; a target of 0 is none.
func versus(measured, target time.Duration) string {
	text := fmt.Sprintf("%.2f s", max(0, measured).Seconds())
	switch {
	case target == 0:
	case measured > target:
		text += fmt.Sprintf(" (target %v, missed)", target)
	default:
		text += fmt.Sprintf(" (target %v)", target)
	}
	return text
}

// String is the row of the outage in a Markdown table.
func (o outage) String() string {
	heal := versus(o.heal, o.fault.heal)
	if !o.healed {
		heal = "**not**"
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %d | %d | %d of %d | %s | %s | %s |", o.fault.name, o.lanes, versus(o.requests, o.fault.gap),
		versus(o.stream, 2*o.fault.gap),
		o.broken, o.lost, o.hit, flowCount(), heal, versus(o.stale, staleTarget), versus(o.local, 0))
}

// printOutages adds the table for docs/benchmarks.md to the report at the end of the run.
func printOutages(table []outage) {
	if len(table) == 0 {
		return
	}
	text := "outages\n  | fault | lanes | longest gap, requests | longest gap, stream | streams broken | requests lost | pairs hit | healed " +
		"after the fault ended | Established without traffic | longest gap within a cluster |\n" +
		"  |---|---|---|---|---|---|---|---|---|---|\n"
	for _, o := range table {
		text += "  " + o.String() + "\n"
	}
	clusters.Report(text)
}

// gateways returns the pods of a cluster's gateways, in the order of their lanes.
func gateways(c *env.Cluster) ([]env.Pod, error) {
	all, err := c.Pods("liqo", map[string]string{gatewayLabel: gatewayActive})
	slices.SortFunc(all, func(a, b env.Pod) int { return strings.Compare(a.Labels[laneLabel], b.Labels[laneLabel]) })
	return all, err
}

// gateway returns the current gateway of a lane.
func gateway(t *testing.T, c *env.Cluster, lane int) (found env.Pod) {
	t.Helper()
	// Its lane may be up before its kubelet reports it Ready.
	env.Eventually(t, env.Hang, fmt.Sprintf("%s has a gateway of lane %d that is Ready", c.Name, lane), func() (string, bool) {
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
	hasNetwork := func(pod env.Pod) error { _, err := pod.Net(); return err }
	runs := func(pod env.Pod) error { _, err := pod.Process("liqo"); return err }
	env.Eventually(t, env.Hang, node.Name+" and its pods are back", func() (string, bool) {
		for _, args := range [][]string{
			{"wait", "node/" + node.Name, "--for=condition=Ready", "--timeout=60s"},
			{"-n", "liqo", "rollout", "status", "daemonset/liqo-route", "--timeout=60s"},
			{"-n", traffic.Namespace, "rollout", "status", "daemonset/server", "--timeout=60s"},
			{"-n", "liqo", "wait", "deployment", "-l", gatewayLabel, "--for=condition=Available", "--timeout=60s"},
		} {
			if result := c.TryKubectl("", args...); result.Code != 0 && !strings.Contains(result.Err, "no matching resources") {
				return result.String(), false
			}
		}
		// The status of a pod may date from before the node was off, until Kubernetes marks the pod not Ready for a moment.
		for _, want := range []struct {
			what  string
			pods  func() ([]env.Pod, error)
			least int
			check func(env.Pod) error
		}{
			{"servers", func() ([]env.Pod, error) { return traffic.Servers(c) }, len(c.Nodes), hasNetwork},
			{"liqo-route", func() ([]env.Pod, error) { return c.Pods("liqo", map[string]string{labels.AppComponent: "route"}) }, len(c.Nodes), runs},
			{"gateways", func() ([]env.Pod, error) { return gateways(c) }, 1, runs},
		} {
			all, err := want.pods()
			if err != nil || len(all) < want.least {
				return fmt.Sprintf("%d pods of %s, want %d: %v", len(all), want.what, want.least, err), false
			}
			for _, pod := range all {
				if err := want.check(pod); err != nil {
					return err.Error(), false
				}
			}
		}
		return "", true
	})
}
