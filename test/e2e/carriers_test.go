// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/netip"
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

// carriersHere installs both clusters with a stream port, peers them, and returns how long the tunnel takes to go over a carrier.
func carriersHere(t *testing.T) (until func(want string) time.Duration) {
	t.Helper()
	for _, c := range both() {
		c.Install(t, "--set", "gateway.config.streamPort=443")
		traffic.Serve(t, c)
	}
	t.Cleanup(func() {
		for _, c := range both() {
			c.Kubectl(t, "delete", "namespace", traffic.Namespace, "--ignore-not-found", "--wait=false")
			c.Install(t, "--reset-values")
		}
	})
	lines := rome.Liqoctl(t, milan.PeerCommand(t)...)
	for _, want := range []string{
		"Tunnel over UDP: ", "whether it works shows when", "Tunnel over TLS: ", "Tunnel over WebSocket: ",
		"/liqo/lane-0 works from this machine",
	} {
		if !strings.Contains(lines.Out+lines.Err, want) {
			t.Errorf("liqoctl peer does not print %q: %s", want, lines)
		}
	}
	rome.NodeReady(t, milan)
	return func(want string) time.Duration {
		t.Helper()
		return env.Eventually(t, env.Hang, "the tunnel goes over "+want, func() (string, bool) {
			view, err := networks.See(rome, milan)
			if err != nil {
				return err.Error(), false
			}
			return view.Carrier + ": " + view.Lanes, view.Carrier == want && view.Lanes == "lane 0 up"
		})
	}
}

// onlyTCP and open close and open UDP between the clusters.
func onlyTCP(t *testing.T) {
	clusters.Do(t, "fault", "allow", rome.Name, milan.Name, "tcp/1-65535", "icmp")
}

func open(t *testing.T) { clusters.Do(t, "fault", "heal", rome.Name, milan.Name) }

// carriers: while UDP does not pass between the clusters, the tunnel goes over TLS, and returns to UDP afterwards, ten times. Neither a connection
// with a request each 50 ms, as of a database, nor a long download breaks.
func carriers(t *testing.T) {
	const turns = 10
	until := carriersHere(t)
	until("UDP")
	kinds := []string{"stream", "bulk"}
	var results []func() followed
	for _, kind := range kinds {
		results = append(results, connection(t, kind))
	}
	t.Cleanup(func() { open(t) })
	type turn struct{ closed, opened, back time.Time }
	var all []turn
	for range turns {
		var one turn
		one.closed = time.Now()
		onlyTCP(t)
		until("TLS")
		one.opened = time.Now()
		open(t)
		until("UDP")
		one.back = time.Now()
		all = append(all, one)
	}
	onlyTCP(t)
	until("TLS")
	reasons(t)
	clusters.Measure("connectivity matrix over TLS", "%d checks", traffic.Matrix(t, clusters, rome, milan)+traffic.Matrix(t, clusters, milan, rome))
	open(t)
	until("UDP")
	var counted []followed
	for i, result := range results {
		got := result()
		counted = append(counted, got)
		clusters.Measure("carriers: "+kinds[i]+" over all changes", "%d answers, %d lost, broken %d %s", got.Last.Good, got.Last.Lost, got.Last.Broken, got.Last.Why)
		if got.Last.Broken > 0 || got.Last.Good == 0 {
			t.Errorf("the connection (%s) of a pod: %+v", kinds[i], got.Last)
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n| turn | UDP closed until the status has TLS | gap of requests, of the download (target 5 s) | opened until the "+
		"status has UDP | gap of requests, of the download (target 1 s) |\n|---|---|---|---|---|\n")
	for i, one := range all {
		fmt.Fprintf(
			&table, "| %d | %.1f s | %s | %.1f s | %s |\n", i+1, one.opened.Sub(one.closed).Seconds(), gapsIn(counted, one.closed, one.opened),
			one.back.Sub(one.opened).Seconds(), gapsIn(counted, one.opened, one.back),
		)
	}
	clusters.Report(table.String())
}

// reasons: the status and an event report why the tunnel does not go over UDP.
func reasons(t *testing.T) {
	t.Helper()
	shown := rome.Liqoctl(t, "status", "peer", milan.Name, "--verbose").Out
	if !strings.Contains(shown, "UDP: ") || !strings.Contains(shown, "did not answer") {
		t.Errorf("the status does not have the reason: %s", shown)
	}
	events := rome.Kubectl(t, "get", "events", "-A", "--field-selector", "reason=CarrierChanged", "-o", "jsonpath={.items[*].note}{.items[*].message}")
	if !strings.Contains(events, "TLS instead of UDP") || !strings.Contains(events, "UDP again") {
		t.Errorf("events: %s", events)
	}
}

// gapsIn lists the longest gap of each connection in a time. The middle of a gap counts: it starts with the last answer, a moment before its cause.
func gapsIn(all []followed, from, to time.Time) string {
	var texts []string
	for _, one := range all {
		var longest time.Duration
		for _, gap := range one.Gaps {
			took := gap[1].Sub(gap[0])
			if middle := gap[0].Add(took / 2); middle.After(from) && middle.Before(to) {
				longest = max(longest, took)
			}
		}
		texts = append(texts, fmt.Sprintf("%.1f s", longest.Seconds()))
	}
	return strings.Join(texts, ", ")
}

// behindNAT: the tunnel follows a NAT router whose flows and address change, over UDP and over TLS, and a connection of a pod goes on.
func behindNAT(t *testing.T) {
	until := carriersHere(t)
	until("UDP")
	clusters.Do(t, "nat", "add", rome.Name)
	t.Cleanup(func() { clusters.Do(t, "nat", "remove", rome.Name) })
	answers(t)
	until("UDP")
	result := connection(t, "stream")
	t.Cleanup(func() { open(t) })
	moved := func(what string, args ...string) {
		t.Helper()
		start := time.Now()
		clusters.Do(t, append([]string{"nat"}, args...)...)
		answers(t)
		clusters.Measure("carriers: "+what+", until pods answer (target 10 s)", "%.1f s", time.Since(start).Seconds())
	}
	moved("UDP behind NAT, other ports", "rebind", rome.Name)
	moved("UDP behind NAT, another address", "rebind", rome.Name, "--new-address")
	onlyTCP(t)
	until("TLS")
	moved("TLS behind NAT, other ports", "rebind", rome.Name)
	moved("TLS behind NAT, another address", "rebind", rome.Name, "--new-address")
	open(t)
	until("UDP")
	got := result()
	clusters.Measure(
		"carriers: a connection of pods behind NAT", "%d answers, longest gap %s, broken %d", got.Last.Good,
		gapsIn([]followed{got}, time.Time{}, time.Now()), got.Last.Broken,
	)
	if got.Last.Broken > 0 || got.Last.Good == 0 {
		t.Errorf("the connection of a pod: %+v", got.Last)
	}
}

// throughProxies: only HTTP passes. The tunnel leaves through a forward proxy that wants a password, and enters through a reverse proxy with one
// path; the password is nowhere but in its Secret.
func throughProxies(t *testing.T) {
	const password = "a-password-of-the-proxy"
	until := carriersHere(t)
	until("UDP")
	added := func(cluster *env.Cluster, args ...string) (name, url string) {
		t.Helper()
		r := clusters.Playground(append([]string{"proxy", "add", cluster.Name}, args...)...)
		name, rest, found := strings.Cut(strings.SplitN(r.Out, "\n", 2)[0], " is up at ")
		if r.Code != 0 || !found {
			t.Fatal(r)
		}
		t.Cleanup(func() { clusters.Do(t, "proxy", "remove", name) })
		url, _, _ = strings.Cut(rest, " ")
		return name, strings.TrimSuffix(strings.TrimSuffix(url, ","), "/")
	}
	milan.Install(t, "--set", "gateway.config.streamPort=443,gateway.service.streamType=NodePort")
	port := milan.Kubectl(t, "-n", "liqo", "get", "service", "liqo-gateway-stream", "-o", "jsonpath={.spec.ports[0].nodePort}")
	_, entrance := added(milan, "--listen", "443", "--tls", "--path", "/liqo", "--to", port)
	_, exit := added(rome, "--kind", "connect", "--listen", "3128", "--user", "liqo", "--password", password)
	milan.Install(t, "--set", "gateway.config.streamPort=443,gateway.service.streamType=NodePort,gateway.config.webSocketURL="+entrance)
	host := strings.TrimPrefix(exit, "http://")
	secret := func(given string) {
		rome.Apply(
			t,
			fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: tunnel-proxy, namespace: liqo}, stringData: {HTTPS_PROXY: 'http://liqo:%s@%s'}}", given, host),
		)
	}
	secret("wrong")
	t.Cleanup(func() { rome.Kubectl(t, "-n", "liqo", "delete", "secret", "tunnel-proxy", "--ignore-not-found") })
	rome.Install(t, "--set", "gateway.config.proxySecret=tunnel-proxy")
	until("UDP")
	result := connection(t, "stream")
	t.Cleanup(func() { open(t) })
	// One way: otherwise milan would dial the stream port of rome.
	clusters.Do(t, "fault", "allow", rome.Name, milan.Name, "tcp/443", "tcp/6443", "tcp/5000", "icmp", "--one-way")
	env.Eventually(t, env.Hang, "the status reports that the proxy refuses", func() (string, bool) {
		shown := rome.Liqoctl(t, "status", "peer", milan.Name, "--verbose").Out
		return shown, strings.Contains(shown, "407") || strings.Contains(shown, "401") // Tinyproxy's
	})
	secret(password)
	clusters.Measure("carriers: right password of the proxy until the status has WebSocket", "%.1f s", until("WebSocket").Seconds())
	clusters.Measure("connectivity matrix over WebSockets through two proxies", "%d checks", traffic.Matrix(t, clusters, rome, milan))
	for _, shown := range []string{
		rome.Kubectl(t, "-n", "liqo", "logs", "deployment/liqo-gateway"), rome.Kubectl(t, "get", "events", "-A", "-o", "yaml"),
		rome.Kubectl(t, "get", "tunnelendpoints,foreignclusters,networkconfigs", "-A", "-o", "yaml"), rome.Kubectl(t, "-n", "liqo", "get", "pods", "-o", "yaml"),
	} {
		if strings.Contains(shown, password) {
			t.Errorf("the password of the proxy is in: %.2000s", shown)
		}
	}
	open(t)
	until("UDP")
	if got := result(); got.Last.Broken > 0 || got.Last.Good == 0 {
		t.Errorf("the connection of a pod: %+v", got.Last)
	}
}

// podsApart returns the network of a pod of rome, and the address there of one of milan.
func podsApart(t *testing.T) (place netns.Place, address netip.Addr) {
	t.Helper()
	view, err := networks.See(rome, milan)
	if err != nil {
		t.Fatal(err)
	}
	client, server := traffic.AllServers(t, rome)[0], traffic.AllServers(t, milan)[0]
	if address, err = view.Pod(server.Address); err != nil {
		t.Fatal(err)
	}
	if place, err = client.Net(); err != nil {
		t.Fatal(err)
	}
	return place, address
}

// answers waits until a new connection from a pod of rome to one of milan has an answer.
func answers(t *testing.T) {
	t.Helper()
	place, address := podsApart(t)
	env.Eventually(t, env.Hang, "a pod of milan answers", func() (string, bool) {
		got := place.Try(filepath.Join(clusters.Bin, "traffic"), "check", "http", traffic.Endpoint(address, traffic.EchoPort+1))
		return got.String(), got.Code == 0
	})
}

// counts are what a client of one connection counts.
type counts struct {
	Good, Lost, Broken int
	Why                string
}

// followed is one connection: the last counts, and its gaps from the last answer before to the first one after each.
type followed struct {
	Last counts
	Gaps [][2]time.Time
}

// connection sends requests of a kind over one connection from a pod of rome to one of milan. It has had an answer before the test goes on, and
// another one before the result: after a long outage, TCP sends again as late as the outage was long.
func connection(t *testing.T, kind string) (result func() followed) {
	t.Helper()
	place, address := podsApart(t)
	every := map[string]string{"stream": "50ms", "bulk": "10ms"}[kind]
	command := place.Command(filepath.Join(clusters.Bin, "traffic"), kind, "--every", every, "milan="+traffic.Endpoint(address, traffic.EchoPort))
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var got followed
	answered := func(more string, than int) {
		t.Helper()
		env.Eventually(t, env.Hang, "the connection "+more, func() (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprintf("%+v", got.Last), got.Last.Good > than
		})
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var line struct {
				Kind     string
				From, To time.Time
				counts
			}
			if json.Unmarshal(lines.Bytes(), &line) != nil {
				continue // the last line of a client that was stopped
			}
			mu.Lock()
			got.Last = line.counts
			if line.Kind == "gap" {
				got.Gaps = append(got.Gaps, [2]time.Time{line.From, line.To})
			}
			mu.Unlock()
		}
	})
	stop := sync.OnceFunc(func() {
		_ = command.Process.Kill()
		reader.Wait()
		_ = command.Wait() // killed
	})
	t.Cleanup(stop)
	answered("has an answer", 0)
	return func() followed {
		mu.Lock()
		before := got.Last.Good
		mu.Unlock()
		answered("has another answer", before)
		stop()
		got.Gaps = slices.Clip(got.Gaps)
		return got
	}
}
