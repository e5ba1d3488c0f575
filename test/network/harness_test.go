// SPDX-License-Identifier: Apache-2.0

package network

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	network "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/test/env"
	"liqo.io/liqo/test/env/netns"
	"liqo.io/liqo/test/env/networks"
	"liqo.io/liqo/test/env/traffic"
	"liqo.io/liqo/test/env/wireguard"
)

// TestHarness checks the tools of these tests on the playground without Liqo: with a tool that sees nothing, every test would pass.
func TestHarness(t *testing.T) {
	defer clusters.Step(t)()
	uninstall(t)
	for _, c := range []*env.Cluster{alpha, beta} {
		traffic.Serve(t, c)
		t.Cleanup(func() { c.Kubectl(t, "delete", "namespace", traffic.Namespace, "--timeout=60s") })
	}
	pods := traffic.AllServers(t, alpha)
	client, server := pods[0], pods[1]
	t.Run("check", func(t *testing.T) {
		for _, args := range traffic.Checks(server.Address, traffic.EchoPort) {
			must(t, inside(t, client), client.Address, args...)
		}
		if _, err := ask(t, inside(t, client), "udp", traffic.Endpoint(server.Address, 9), "--timeout", "300ms"); err == nil {
			t.Error("a port without a listener answers")
		}
	})
	t.Run("capture", func(t *testing.T) {
		what := word()
		other := capture(t, client.Node.Net(), word())
		end := capture(t, client.Node.Net(), what)
		must(t, inside(t, client), client.Address, "http", traffic.Endpoint(server.Address, traffic.EchoPort+1), "--bytes", "300000", "--word", what)
		if n := found(end()); n == 0 {
			t.Error("the capture does not see an unencrypted packet")
		}
		if n := found(other()); n != 0 {
			t.Errorf("the capture sees %d packets with a word that was not sent", n)
		}
	})
	t.Run("gaps", func(t *testing.T) {
		f := &flows{now: map[flow]counts{}, sources: map[*exec.Cmd]*env.Node{}}
		t.Cleanup(f.stop)
		port := traffic.NodePort(t, beta, "server", "tcp")
		for _, kind := range []string{"stream", "requests"} {
			f.client(t, inside(t, client), kind, []string{"there=" + beta.Nodes[0].Address.String() + ":" + port},
				map[string]flow{"there": {from: client.Node, to: beta.Nodes[0]}})
		}
		stream, requests := flow{"stream", client.Node, beta.Nodes[0]}, flow{"requests", client.Node, beta.Nodes[0]}
		f.measuresGap(t, []flow{stream, requests},
			func() { clusters.Do(t, "fault", "partition", alpha.Name, beta.Name) },
			func() bool { return f.state()[requests].Lost >= 3 },
			func() { clusters.Do(t, "fault", "heal", alpha.Name, beta.Name) })
	})
	t.Run("gaps within a cluster", func(t *testing.T) {
		f := &flows{now: map[flow]counts{}, sources: map[*exec.Cmd]*env.Node{}}
		t.Cleanup(f.stop)
		f.local(t, alpha, client)
		pid, err := server.Process("traffic")
		if err != nil {
			t.Fatal(err)
		}
		signal := func(s syscall.Signal) {
			t.Helper()
			if err := syscall.Kill(pid, s); err != nil {
				t.Fatal(err)
			}
		}
		f.measuresGap(
			t, []flow{{"local", client.Node, server.Node}}, func() { signal(syscall.SIGSTOP) }, func() bool { return true },
			func() { signal(syscall.SIGCONT) },
		)
	})
	t.Run("bare WireGuard", func(t *testing.T) {
		here, there := alpha.Nodes[1], beta.Nodes[0]
		address := wireguard.Pair(t, clusters, [2]netns.Place{here.Net(), there.Net()}, netip.AddrPortFrom(there.Address, 51871), 51871)
		what := word()
		end := capture(t, netns.Router(), what)
		must(t, here.Net(), netip.Addr{}, "http", traffic.Endpoint(address, traffic.HostPort+1), "--bytes", "1000000", "--word", what)
		if n := found(end()); n != 0 {
			t.Errorf("%d packets in the clear", n)
		}
	})
	t.Run("narrow path", func(t *testing.T) {
		here, there := alpha.Nodes[0], beta.Nodes[0]
		address := wireguard.Pair(t, clusters, [2]netns.Place{here.Net(), there.Net()}, netip.AddrPortFrom(there.Address, 51872), 51872)
		narrowed(t, alpha, beta)
		must(t, here.Net(), netip.Addr{}, "udp", traffic.Endpoint(address, traffic.HostPort), "--bytes", "1000")
		if _, err := ask(t, here.Net(), "http", traffic.Endpoint(address, traffic.HostPort+1), "--bytes", "1000000", "--timeout", "3s"); err == nil {
			t.Error("large bodies pass through a bare tunnel, so the path is not narrow")
		}
	})
	t.Run("intruder", intruderArrives)
}

// measuresGap interrupts flows until all are silent and enough returns true, and checks that each then reports a gap that contains a moment at
// which it was silent.
func (f *flows) measuresGap(t *testing.T, all []flow, interrupt func(), enough func() bool, restore func()) {
	t.Helper()
	silent := func() (n int) {
		state := f.state()
		for _, which := range all {
			if time.Since(state[which].Answered) > silentAfter {
				n++
			}
		}
		return n
	}
	env.Eventually(t, env.Hang, "all flows have answers", func() (string, bool) { n := silent(); return fmt.Sprint(n, " without"), n == 0 })
	interrupt()
	env.Eventually(t, env.Hang, "all flows are silent", func() (string, bool) {
		n := silent()
		return fmt.Sprint(n, " of ", len(all)), n == len(all) && enough()
	})
	during := time.Now()
	restore()
	env.Eventually(t, env.Hang, "all flows have answers again and report the gap", func() (string, bool) {
		reported := map[flow]bool{}
		for _, g := range f.since(during) {
			reported[g.flow] = reported[g.flow] || g.from.Before(during)
		}
		for _, which := range all {
			if !reported[which] {
				return which.String() + " has reported no gap", false
			}
		}
		n := silent()
		return fmt.Sprint(n, " without answers"), n == 0
	})
}

// intruderArrives replaces alpha's gateway by a device without any filter: packets of the intruder must arrive there.
func intruderArrives(t *testing.T) {
	var keys [2]*ecdh.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	gamma.Kubectl(t, "create", "namespace", "liqo")
	t.Cleanup(func() { gamma.Kubectl(t, "delete", "namespace", "liqo", "--timeout=60s") })
	gamma.Kubectl(t, "-n", "liqo", "create", "secret", "generic", "liqo-gateway-keys",
		"--from-literal=lane-0.current="+base64.StdEncoding.EncodeToString(keys[0].Bytes()))
	victim := alpha.Nodes[1]
	device := wireguard.Start(t, clusters, victim.Net(), "victim")
	device.Set(t, "private_key="+hex.EncodeToString(keys[1].Bytes()), "listen_port=51873",
		"public_key="+hex.EncodeToString(keys[0].PublicKey().Bytes()), "allowed_ip=0.0.0.0/0")
	peer := intrude(t, gamma, networks.View{Here: gamma, There: alpha, Spec: network.TunnelEndpointSpec{
		EndpointIP:    victim.Address.String(),
		BackendConfig: map[string]string{"publicKey": base64.StdEncoding.EncodeToString(keys[1].PublicKey().Bytes()), "port": "51873"},
	}})
	what := word()
	end := capture(t, victim.Net(), what)
	peer.Handshake(t)
	peer.Run(t, filepath.Join(clusters.Bin, "traffic"), "send", "--link", intruder, "--from", "10.9.8.7", "--to", "10.90.0.10:53", "--word", what)
	waitForStragglers()
	if n := found(end()); n < 5 {
		t.Errorf("%d packets of the intruder were seen at the other end of its tunnel, want 10", n)
	}
}
