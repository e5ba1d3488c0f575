// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
)

// flow is the traffic from a pod of one cluster to one of another.
type flow struct {
	kind     string // stream: one connection for all requests; requests: a connection for each; local: requests within a cluster
	from, to *env.Node
}

func (f flow) String() string { return f.kind + " " + f.from.Name + ">" + f.to.Name }

// touches returns true if the flow starts or ends at the node.
func (f flow) touches(node *env.Node) bool { return node != nil && (f.from == node || f.to == node) }

// gap is a time without an answer, as the client measured it.
type gap struct {
	flow     flow
	from, to time.Time
}

func (g gap) length() time.Duration { return g.to.Sub(g.from) }

// counts are the latest counts of a flow.
type counts struct {
	Answered           time.Time
	Sent, Lost, Broken int
	Why                string
}

// flows sends a request each 50 ms between every two nodes of different clusters, in both directions and of both kinds.
type flows struct {
	mu      sync.Mutex
	now     map[flow]counts
	gaps    []gap
	clients []*exec.Cmd
	readers sync.WaitGroup
	// sources are the nodes that the clients run on.
	sources map[*exec.Cmd]*env.Node
}

// startFlows starts the traffic between the current pods.
func startFlows(t *testing.T) *flows {
	t.Helper()
	f := &flows{now: map[flow]counts{}, sources: map[*exec.Cmd]*env.Node{}}
	f.start(t)
	t.Cleanup(f.stop)
	return f
}

func (f *flows) start(t *testing.T) {
	t.Helper()
	for _, here := range clusters.Clusters {
		for _, client := range traffic.AllServers(t, here) {
			targets := map[string]flow{}
			var args []string
			for _, pair := range directions() {
				if pair[0] != here {
					continue
				}
				view := see(t, here, pair[1])
				for _, server := range traffic.AllServers(t, pair[1]) {
					args = append(args, server.Node.Name+"="+traffic.Endpoint(valid(t)(view.Pod(server.Address)), traffic.EchoPort))
					targets[server.Node.Name] = flow{from: client.Node, to: server.Node}
				}
			}
			for _, kind := range []string{"stream", "requests"} {
				f.client(t, inside(t, client), kind, args, targets)
			}
			f.local(t, here, client)
		}
	}
}

// local starts traffic from a pod to those on other nodes of its cluster, which no fault of the network between clusters may interrupt.
func (f *flows) local(t *testing.T, c *env.Cluster, client env.Pod) {
	t.Helper()
	targets := map[string]flow{}
	var args []string
	for _, server := range traffic.AllServers(t, c) {
		if server.Node != client.Node {
			args = append(args, server.Node.Name+"="+traffic.Endpoint(server.Address, traffic.EchoPort))
			targets[server.Node.Name] = flow{from: client.Node, to: server.Node}
		}
	}
	if len(args) > 0 {
		f.client(t, inside(t, client), "local", args, targets)
	}
}

func (f *flows) client(t *testing.T, from netns.Place, kind string, args []string, targets map[string]flow) {
	t.Helper()
	command := kind
	if kind == "local" {
		command = "requests"
	}
	cmd := from.Command(filepath.Join(clusters.Bin, "traffic"), append([]string{command}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.clients = append(f.clients, cmd)
	for _, which := range targets {
		f.sources[cmd] = which.from
	}
	f.readers.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var line struct {
				Kind, Target string
				From, To     time.Time
				counts
			}
			if json.Unmarshal(lines.Bytes(), &line) != nil {
				continue // the last line of a client that was stopped
			}
			which := targets[line.Target]
			which.kind = kind
			f.mu.Lock()
			f.now[which] = line.counts
			if line.Kind == "gap" {
				f.gaps = append(f.gaps, gap{which, line.From, line.To})
			}
			f.mu.Unlock()
		}
	})
}

// stopOn stops the clients on a node before it is switched off. They keep the network namespaces of its pods alive, with links and routes for
// addresses that other pods get when the node is back.
func (f *flows) stopOn(node *env.Node) {
	for _, cmd := range f.clients {
		if node != nil && f.sources[cmd] == node {
			_ = cmd.Process.Kill() // it may have exited
		}
	}
}

// stop ends all clients.
func (f *flows) stop() {
	for _, cmd := range f.clients {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have exited
	}
	f.readers.Wait()
	for _, cmd := range f.clients {
		_ = cmd.Wait()
	}
	f.clients = nil
}

// restart restarts all clients: pods have moved, or connections wait for retransmissions that are a minute apart.
func (f *flows) restart(t *testing.T) {
	t.Helper()
	f.stop()
	f.mu.Lock()
	f.now = map[flow]counts{}
	f.mu.Unlock()
	f.start(t)
}

// state copies the counts of all flows.
func (f *flows) state() map[flow]counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.now)
}

// since returns the gaps that ended after a moment.
func (f *flows) since(moment time.Time) (all []gap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.gaps {
		if g.to.After(moment) {
			all = append(all, g)
		}
	}
	return all
}

// flowCount is the number of flows between clusters of one kind.
func flowCount() (n int) {
	for _, pair := range directions() {
		n += len(pair[0].Nodes) * len(pair[1].Nodes)
	}
	return n
}

// silentAfter is the age of the last answer from which a flow counts as silent.
const silentAfter = 1500 * time.Millisecond

// silent returns the flows of the kinds that had no answer recently. A client prints its counts once a second, so the latest answer of a
// flow that works is up to a second older than its line.
func (f *flows) silent(without *env.Node, kinds ...string) (names []string) {
	state := f.state()
	for _, kind := range kinds {
		known := 0
		for which, counts := range state {
			if which.kind != kind {
				continue
			}
			known++
			if !which.touches(without) && time.Since(counts.Answered) > silentAfter {
				names = append(names, fmt.Sprintf("%v for %.1f s (%s)", which, time.Since(counts.Answered).Seconds(), counts.Why))
			}
		}
		if known < flowCount() {
			names = append(names, fmt.Sprintf("%d of %d flows of kind %s have printed nothing", flowCount()-known, flowCount(), kind))
		}
	}
	slices.Sort(names)
	return names
}

// flowing waits until no flow has been silent for two seconds; it returns false after the time.
func (f *flows) flowing(t *testing.T, within time.Duration, without *env.Node, kinds ...string) bool {
	t.Helper()
	deadline, good := time.Now().Add(within), time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		silent := f.silent(without, kinds...)
		if len(silent) > 0 {
			good = time.Now()
		}
		switch {
		case time.Since(good) > 2*time.Second:
			return true
		case time.Now().After(deadline):
			t.Logf("still silent after %v:\n      %s", within, strings.Join(silent, "\n      "))
			return false
		}
		<-tick.C
	}
}

// stale returns the longest time that a cluster reported Established to another during a gap since start.
func (f *flows) stale(without *env.Node, status *statusLog, start time.Time) (longest time.Duration) {
	f.eachStale(without, start, func(g gap, pair [2]*env.Cluster) {
		longest = max(longest, status.reportedEstablished(pair, g.from, g.to.Add(-probeAhead)))
	})
	return longest
}

// eachStale calls do for both directions of each gap of requests that is longer than the target for a stale status.
func (f *flows) eachStale(without *env.Node, start time.Time, do func(gap, [2]*env.Cluster)) {
	for _, g := range f.since(start) {
		if g.flow.kind != "requests" || g.flow.touches(without) || g.length() < staleTarget {
			continue
		}
		for _, pair := range [][2]*env.Cluster{{g.flow.from.Cluster, g.flow.to.Cluster}, {g.flow.to.Cluster, g.flow.from.Cluster}} {
			if without == nil || pair[0] != without.Cluster { // its controller manager, which reports the status, may have run on that node
				do(g, pair)
			}
		}
	}
}

// reported is the status of a network from a moment on.
type reported struct {
	from   time.Time
	status string // Established and so on; empty: the API server did not answer
}

// statusLog records the status that every cluster reports of its networks.
type statusLog struct {
	mu  sync.Mutex
	all map[[2]*env.Cluster][]reported
}

func followStatus(t *testing.T) *statusLog {
	t.Helper()
	s := &statusLog{all: map[[2]*env.Cluster][]reported{}}
	done := make(chan struct{})
	var running sync.WaitGroup
	for _, pair := range directions() {
		running.Go(func() {
			tick := time.NewTicker(250 * time.Millisecond)
			defer tick.Stop()
			for {
				condition, err := networks.Condition(pair[0], pair[1])
				if err != nil {
					condition.Status = ""
				}
				s.record(pair, string(condition.Status))
				select {
				case <-done:
					return
				case <-tick.C:
				}
			}
		})
	}
	t.Cleanup(func() {
		close(done)
		running.Wait()
	})
	return s
}

func (s *statusLog) record(pair [2]*env.Cluster, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.all[pair]; len(had) == 0 || had[len(had)-1].status != status {
		s.all[pair] = append(had, reported{time.Now(), status})
	}
}

// reportedEstablished returns for how long a cluster reported Established between two moments.
func (s *statusLog) reportedEstablished(pair [2]*env.Cluster, from, to time.Time) (total time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.all[pair] {
		end := time.Now()
		if i+1 < len(s.all[pair]) {
			end = s.all[pair][i+1].from
		}
		start, end := later(one.from, from), earlier(end, to)
		if one.status == "Established" && end.After(start) {
			total += end.Sub(start)
		}
	}
	return total
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
