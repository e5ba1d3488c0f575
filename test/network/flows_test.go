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
)

// flow is the traffic from a pod of one cluster to one of another.
type flow struct {
	kind     string // stream: one connection for all requests; requests: one for each; beside: the same within a cluster
	from, to *env.Node
}

func (f flow) String() string { return f.kind + " " + f.from.Name + ">" + f.to.Name }

// touches tells whether the flow begins or ends at the node.
func (f flow) touches(node *env.Node) bool { return node != nil && (f.from == node || f.to == node) }

// gap is a time without an answer, as the client saw it.
type gap struct {
	flow     flow
	from, to time.Time
}

func (g gap) length() time.Duration { return g.to.Sub(g.from) }

// tally is how a flow stands.
type tally struct {
	Answered           time.Time
	Sent, Lost, Broken int
	Why                string
}

// flows is a request each 50 ms on every pair of nodes of different clusters, in both directions and both kinds.
type flows struct {
	mu      sync.Mutex
	now     map[flow]tally
	gaps    []gap
	clients []*exec.Cmd
	readers sync.WaitGroup
	// sources are the nodes that the clients run on.
	sources map[*exec.Cmd]*env.Node
}

// startFlows begins, with the pods as they are now.
func startFlows(t *testing.T) *flows {
	t.Helper()
	f := &flows{now: map[flow]tally{}, sources: map[*exec.Cmd]*env.Node{}}
	f.start(t)
	t.Cleanup(f.stop)
	return f
}

func (f *flows) start(t *testing.T) {
	t.Helper()
	for _, here := range clusters.Clusters {
		for _, client := range serversOf(t, here) {
			targets := map[string]flow{}
			var args []string
			for _, pair := range directions() {
				if pair[0] != here {
					continue
				}
				view := see(t, here, pair[1])
				for _, server := range serversOf(t, pair[1]) {
					args = append(args, server.Node.Name+"="+at(valid(t)(view.Pod(server.Address)), env.EchoPort))
					targets[server.Node.Name] = flow{from: client.Node, to: server.Node}
				}
			}
			for _, kind := range []string{"stream", "requests"} {
				f.client(t, inside(t, client), kind, args, targets)
			}
			f.beside(t, here, client)
		}
	}
}

// beside is traffic that has nothing to do with the network between clusters: from a pod to those on other nodes of its cluster. When
// it stands still as well, nobody had a processor.
func (f *flows) beside(t *testing.T, c *env.Cluster, client env.Pod) {
	t.Helper()
	targets := map[string]flow{}
	var args []string
	for _, server := range serversOf(t, c) {
		if server.Node != client.Node {
			args = append(args, server.Node.Name+"="+at(server.Address, env.EchoPort))
			targets[server.Node.Name] = flow{from: client.Node, to: server.Node}
		}
	}
	if len(args) > 0 {
		f.client(t, inside(t, client), "beside", args, targets)
	}
}

func (f *flows) client(t *testing.T, from env.Place, kind string, args []string, targets map[string]flow) {
	t.Helper()
	how := kind
	if kind == "beside" {
		how = "requests"
	}
	cmd := from.Command(filepath.Join(clusters.Bin, "traffic"), append([]string{how}, args...)...)
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
				tally
			}
			if json.Unmarshal(lines.Bytes(), &line) != nil {
				continue // the last line of a client that was ended
			}
			which := targets[line.Target]
			which.kind = kind
			f.mu.Lock()
			f.now[which] = line.tally
			if line.Kind == "gap" {
				f.gaps = append(f.gaps, gap{which, line.From, line.To})
			}
			f.mu.Unlock()
		}
	})
}

// leave ends the clients on a node. They are in the network namespaces of its pods, which would outlive the node with them: links and routes
// of addresses that other pods are given when it is back.
func (f *flows) leave(node *env.Node) {
	for _, cmd := range f.clients {
		if node != nil && f.sources[cmd] == node {
			_ = cmd.Process.Kill() // it may have ended
		}
	}
}

// stop ends all clients.
func (f *flows) stop() {
	for _, cmd := range f.clients {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	f.readers.Wait()
	for _, cmd := range f.clients {
		_ = cmd.Wait()
	}
	f.clients = nil
}

// anew starts all clients again: pods have moved, or connections wait for retransmissions that are a minute apart.
func (f *flows) anew(t *testing.T) {
	t.Helper()
	f.stop()
	f.mu.Lock()
	f.now = map[flow]tally{}
	f.mu.Unlock()
	f.start(t)
}

// state copies how all flows stand.
func (f *flows) state() map[flow]tally {
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

// stalled is for how long, between two moments, traffic within a cluster stood still, so that the machine and not the network between
// clusters is what was waited for.
func (f *flows) stalled(from, to time.Time, without *env.Node) (total time.Duration) {
	gaps := slices.DeleteFunc(f.since(from), func(g gap) bool { return g.flow.kind != "beside" || g.flow.touches(without) })
	slices.SortFunc(gaps, func(a, b gap) int { return a.from.Compare(b.from) })
	for _, g := range gaps {
		begin, end := later(g.from, from), earlier(g.to, to)
		if end.After(begin) {
			total, from = total+end.Sub(begin), end // what two of them share counts once
		}
	}
	return total
}

// wanted is the number of flows of one kind.
func wanted() (n int) {
	for _, pair := range directions() {
		n += len(pair[0].Nodes) * len(pair[1].Nodes)
	}
	return n
}

// silent are the flows of the kinds that were not answered in the last second. What a client says is a second old at most, so a flow
// that was answered when it spoke, and spoke lately, is well.
func (f *flows) silent(without *env.Node, kinds ...string) (names []string) {
	state := f.state()
	for _, kind := range kinds {
		known := 0
		for which, tally := range state {
			if which.kind != kind {
				continue
			}
			known++
			if !which.touches(without) && time.Since(tally.Answered) > 1500*time.Millisecond {
				names = append(names, fmt.Sprintf("%v for %.1f s (%s)", which, time.Since(tally.Answered).Seconds(), tally.Why))
			}
		}
		if known < wanted() {
			names = append(names, fmt.Sprintf("%d of %d flows of kind %s have not said anything", wanted()-known, wanted(), kind))
		}
	}
	slices.Sort(names)
	return names
}

// flowing waits until nothing was silent for two seconds.
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

// saying is what a cluster says of another from a moment on.
type saying struct {
	from time.Time
	what string // Established and so on; empty: nobody could be asked
}

// sayings follow what every cluster says of its networks.
type sayings struct {
	mu  sync.Mutex
	all map[[2]*env.Cluster][]saying
}

func followSayings(t *testing.T) *sayings {
	t.Helper()
	s := &sayings{all: map[[2]*env.Cluster][]saying{}}
	done := make(chan struct{})
	var running sync.WaitGroup
	for _, pair := range directions() {
		running.Go(func() {
			tick := time.NewTicker(250 * time.Millisecond)
			defer tick.Stop()
			for {
				condition, err := pair[0].Networking(pair[1])
				if err != nil {
					condition.Status = ""
				}
				s.note(pair, string(condition.Status))
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

func (s *sayings) note(pair [2]*env.Cluster, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.all[pair]; len(had) == 0 || had[len(had)-1].what != what {
		s.all[pair] = append(had, saying{time.Now(), what})
	}
}

// lied returns for how long a cluster said Established between two moments.
func (s *sayings) lied(pair [2]*env.Cluster, from, to time.Time) (total time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, said := range s.all[pair] {
		end := time.Now()
		if i+1 < len(s.all[pair]) {
			end = s.all[pair][i+1].from
		}
		begin, end := later(said.from, from), earlier(end, to)
		if said.what == "Established" && end.After(begin) {
			total += end.Sub(begin)
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
