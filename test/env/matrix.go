// SPDX-License-Identifier: Apache-2.0

package env

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
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
	run  func(args ...string) Result
}

// place makes an end of a network namespace.
func (b *Env) place(at Place) end {
	return end{at.Name, func(args ...string) Result { return at.Try(filepath.Join(b.Bin, "traffic"), args...) }}
}

// pod makes an end of a pod: in its network namespace on the playground, which needs neither an API server nor a kubelet; elsewhere by
// kubectl exec.
func (b *Env) pod(t testing.TB, p Pod) end {
	t.Helper()
	if b.playground {
		at, err := p.Net()
		if err != nil {
			t.Fatal(err)
		}
		return b.place(at)
	}
	return end{p.Node.Name + "/" + p.Name, func(args ...string) Result {
		return p.Node.Cluster.TryKubectl("", append([]string{"-n", Namespace, "exec", p.Name, "--", "/usr/bin/traffic"}, args...)...)
	}}
}

// Ask runs one check, and repeats it once if it fails: a route that is still being made is no fault. But each repeat is reported at the end of the run, as a
// path that loses every first packet would otherwise look as good as any.
func (b *Env) Ask(from string, run func(args ...string) Result, args ...string) (Answer, error) {
	var r Result
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
func (b *Env) must(t testing.TB, e end, want netip.Addr, args ...string) {
	t.Helper()
	a, err := b.Ask(e.name, e.run, args...)
	switch {
	case err != nil:
		t.Error(err)
	case want.IsValid() && args[0] != "icmp" && a.From != want.String():
		t.Errorf("from %s, %v: the server saw %s, want %s", e.name, args, a.From, want)
	}
}

// Matrix checks that every pod of one cluster reaches every pod of another, under the addresses that the documentation describes; on the
// playground every node of it too. The clusters must be peered and serve (see Serve). It returns the number of checks.
func (b *Env) Matrix(t *testing.T, here, there *Cluster) (checks int) {
	t.Helper()
	view, err := here.See(there)
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
	for _, server := range b.AllServers(t, there) {
		address := valid(view.Pod(server.Address))
		for _, client := range b.AllServers(t, here) {
			t.Run(fmt.Sprintf("pod on %s to pod on %s", client.Node.Name, server.Node.Name), func(t *testing.T) {
				for _, args := range Checks(address, EchoPort) {
					if args[0] == "icmp" && !b.playground {
						continue // a container without rights cannot send it
					}
					b.must(t, b.pod(t, client), valid(view.Source(client.Address)), args...)
					checks++
				}
			})
			if !b.playground {
				continue
			}
			t.Run(fmt.Sprintf("node %s to pod on %s", client.Node.Name, server.Node.Name), func(t *testing.T) {
				for _, args := range Checks(address, EchoPort) {
					b.must(t, b.place(client.Node.Net()), valid(view.NodeSource(client.Node)), args...)
					checks++
				}
			})
		}
	}
	return checks
}

// AllServers waits until every node of a cluster has a server that is Ready: Kubernetes may take its pods for not Ready for a while after
// its API server, or a node, was away.
func (b *Env) AllServers(t testing.TB, c *Cluster) (all []Pod) {
	t.Helper()
	Eventually(t, Hang, "every node of "+c.Name+" has a server that is Ready", func() (string, bool) {
		var err error
		all, err = c.Servers()
		return fmt.Sprintf("%d of %d, %v", len(all), len(c.Nodes), err), len(all) == len(c.Nodes)
	})
	return all
}
