// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/execution"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
)

// Answer is what `traffic check` prints: the address that the server saw, the server's name (with HTTP), and how long the request took.
type Answer struct{ From, Server, Took string }

// Checks are the protocols and sizes that are tried between each two ends. An HTTP body goes there and comes back.
func Checks(address netip.Addr, port int) [][]string {
	return [][]string{
		{"http", Endpoint(address, port+1), "--bytes", "1"},
		{"http", Endpoint(address, port+1), "--bytes", "10000000", "--timeout", "30s"},
		{"udp", Endpoint(address, port), "--bytes", "1"},
		{"udp", Endpoint(address, port), "--bytes", "20000"},
		{"icmp", Endpoint(address, port), "--bytes", "1"},
		{"icmp", Endpoint(address, port), "--bytes", "8000"},
	}
}

// Endpoint writes an address and a port.
func Endpoint(address netip.Addr, port int) string {
	return netip.AddrPortFrom(address, uint16(port)).String()
}

// end is where a check starts: a network namespace of this machine, or a pod of any cluster.
type end struct {
	name string
	run  func(args ...string) execution.Result
}

// fromPlace makes an end of a network namespace.
func fromPlace(b *env.Env, at netns.Place) end {
	return end{at.Name, func(args ...string) execution.Result { return at.Try(filepath.Join(b.Bin, "traffic"), args...) }}
}

// fromPod makes an end of a pod: in its network namespace on the playground, which needs neither an API server nor a kubelet; elsewhere by
// kubectl exec.
func fromPod(t testing.TB, b *env.Env, p env.Pod) end {
	t.Helper()
	if b.HasPlayground() {
		at, err := p.Net()
		if err != nil {
			t.Fatal(err)
		}
		return fromPlace(b, at)
	}
	return end{p.Node.Name + "/" + p.Name, func(args ...string) execution.Result {
		return p.Node.Cluster.TryKubectl("", append([]string{"-n", Namespace, "exec", p.Name, "--", "/usr/bin/traffic"}, args...)...)
	}}
}

// Ask runs one check, and repeats it once if it fails: a route that is still being made is no fault. But each repeat is reported at the end of the run, as a
// path that loses every first packet would otherwise look as good as any.
func Ask(b *env.Env, from string, run func(args ...string) execution.Result, args ...string) (Answer, error) {
	var r execution.Result
	for i := range 2 {
		r = run(append([]string{"check"}, args...)...)
		var a Answer
		if r.Code == 0 && json.Unmarshal([]byte(r.Out), &a) == nil {
			if i > 0 {
				b.Measure("a check that had to be repeated", "from %s: %s", from, strings.Join(args, " "))
			}
			return a, nil
		}
	}
	return Answer{}, fmt.Errorf("from %s, twice: %s", from, strings.TrimSpace(r.Err))
}

// must checks and compares the address that the server saw; an invalid one stands for any.
func must(t testing.TB, b *env.Env, e end, want netip.Addr, args ...string) {
	t.Helper()
	a, err := Ask(b, e.name, e.run, args...)
	switch {
	case err != nil:
		t.Error(err)
	case want.IsValid() && args[0] != "icmp" && a.From != want.String():
		t.Errorf("from %s, %v: the server saw %s, want %s", e.name, args, a.From, want)
	}
}

// Matrix checks that every pod of one cluster reaches every pod of another, under the addresses that the documentation describes; on the
// playground every node of it too. The clusters must be peered and serve (see Serve). It returns the number of checks.
func Matrix(t *testing.T, b *env.Env, here, there *env.Cluster) (checks int) {
	t.Helper()
	view, err := networks.See(here, there)
	if err != nil {
		t.Fatal(err)
	}
	valid := func(address netip.Addr, err error) netip.Addr {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return address
	}
	for _, server := range AllServers(t, there) {
		address := valid(view.Pod(server.Address))
		for _, client := range AllServers(t, here) {
			t.Run(fmt.Sprintf("pod on %s to pod on %s", client.Node.Name, server.Node.Name), func(t *testing.T) {
				for _, args := range Checks(address, EchoPort) {
					if args[0] == "icmp" && !b.HasPlayground() {
						continue // a container without rights cannot send it
					}
					must(t, b, fromPod(t, b, client), valid(view.Source(client.Address)), args...)
					checks++
				}
			})
			if !b.HasPlayground() {
				continue
			}
			t.Run(fmt.Sprintf("node %s to pod on %s", client.Node.Name, server.Node.Name), func(t *testing.T) {
				for _, args := range Checks(address, EchoPort) {
					must(t, b, fromPlace(b, client.Node.Net()), valid(view.NodeSource(client.Node)), args...)
					checks++
				}
			})
		}
	}
	return checks
}

// AllServers waits until every node of a cluster has a server that is Ready: Kubernetes may take its pods for not Ready for a while after
// its API server, or a node, was away.
func AllServers(t testing.TB, c *env.Cluster) (all []env.Pod) {
	t.Helper()
	env.Eventually(t, env.Hang, "every node of "+c.Name+" has a server that is Ready", func() (string, bool) {
		var err error
		all, err = Servers(c)
		return fmt.Sprintf("%d of %d, %v", len(all), len(c.Nodes), err), len(all) == len(c.Nodes)
	})
	return all
}
