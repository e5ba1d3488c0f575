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
)

// TestHarness holds the tools of these tests against what the playground does by itself, without the product: a tool that sees nothing
// would let everything pass.
func TestHarness(t *testing.T) {
	for _, c := range []*env.Cluster{alpha, beta} {
		c.Serve(t)
		t.Cleanup(func() { c.Kubectl(t, "delete", "namespace", env.Namespace, "--timeout=60s") })
	}
	pods := serversOf(t, alpha)
	client, server := pods[0], pods[1]
	t.Run("check", func(t *testing.T) {
		for _, args := range kinds(server.Address, env.EchoPort) {
			must(t, inside(t, client), client.Address, args...)
		}
		if _, err := ask(t, inside(t, client), "udp", at(server.Address, 9), "--timeout", "300ms"); err == nil {
			t.Error("a port where nobody listens answers")
		}
	})
	t.Run("capture", func(t *testing.T) {
		what := word()
		other := capture(t, client.Node.Net(), word())
		end := capture(t, client.Node.Net(), what)
		must(t, inside(t, client), client.Address, "http", at(server.Address, env.EchoPort+1), "--bytes", "300000", "--word", what)
		if n := found(end()); n == 0 {
			t.Error("it does not see what passes in the clear")
		}
		if n := found(other()); n != 0 {
			t.Errorf("it sees %d packets with a word that nobody said", n)
		}
	})
	t.Run("gaps", func(t *testing.T) {
		f := &flows{now: map[flow]tally{}, sources: map[*exec.Cmd]*env.Node{}}
		t.Cleanup(f.stop)
		port := beta.NodePort(t, "server", "tcp")
		for _, kind := range []string{"stream", "requests"} {
			f.client(t, inside(t, client), kind, []string{"there=" + beta.Nodes[0].Address.String() + ":" + port},
				map[string]flow{"there": {from: client.Node, to: beta.Nodes[0]}})
		}
		answered := func() bool {
			for _, kind := range []string{"stream", "requests"} {
				if time.Since(f.state()[flow{kind, client.Node, beta.Nodes[0]}].Answered) > 1500*time.Millisecond {
					return false
				}
			}
			return true
		}
		env.Eventually(t, 10*time.Second, "both clients are answered", func() (string, bool) { return "", answered() })
		began := time.Now()
		clusters.Do(t, "fault", "partition", alpha.Name, beta.Name)
		<-time.After(2 * time.Second)
		clusters.Do(t, "fault", "heal", alpha.Name, beta.Name)
		during := time.Since(began)
		// A busy machine makes shorter gaps beside them.
		longest := func() map[string]time.Duration {
			all := map[string]time.Duration{}
			for _, g := range f.since(began) {
				all[g.flow.kind] = max(all[g.flow.kind], g.length())
			}
			return all
		}
		env.Eventually(t, 30*time.Second, "both clients are answered again, and say for how long they were not", func() (string, bool) {
			all := longest()
			return fmt.Sprint(all), answered() && min(all["stream"], all["requests"]) >= 1800*time.Millisecond
		})
		for kind, length := range longest() {
			t.Logf("%s stood still for %v of %v", kind, length, during)
			most := during + 2*time.Second
			if kind == "stream" {
				most += during // TCP tries again after as long as it has waited
			}
			if length > most {
				t.Errorf("%s stood still for %v, but was cut off for 2 to %v", kind, length, during)
			}
		}
		if lost := f.state()[flow{"requests", client.Node, beta.Nodes[0]}].Lost; lost < 3 {
			t.Errorf("%d requests are told to be lost", lost)
		}
	})
	t.Run("stalls", func(t *testing.T) {
		f := &flows{now: map[flow]tally{}, sources: map[*exec.Cmd]*env.Node{}}
		t.Cleanup(f.stop)
		f.beside(t, alpha, client)
		which := flow{"beside", client.Node, server.Node}
		answered := func() (string, bool) {
			return f.state()[which].Why, f.state()[which].Sent > 0 && time.Since(f.state()[which].Answered) < 1500*time.Millisecond
		}
		env.Eventually(t, 10*time.Second, "the client is answered", answered)
		number, err := server.Process("traffic")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := syscall.Kill(number, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Second)
		if err := syscall.Kill(number, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		during := time.Since(began)
		env.Eventually(t, 10*time.Second, "the end of the gap is told", func() (string, bool) {
			whole := f.stalled(began, time.Now(), nil)
			return whole.String(), whole >= 1500*time.Millisecond
		})
		whole := f.stalled(began, time.Now(), nil)
		half := f.stalled(began.Add(time.Second), time.Now(), nil)
		if whole > during+2*time.Second || half > whole-800*time.Millisecond || f.stalled(began, time.Now(), server.Node) != 0 {
			t.Errorf("it stood still for 2 s, and %v are seen, %v of them after the first second; %v without its node", whole, half, f.stalled(began, time.Now(), server.Node))
		}
	})
	t.Run("bare WireGuard", func(t *testing.T) {
		here, there := alpha.Nodes[1], beta.Nodes[0]
		address := clusters.BarePair(t, here.Net(), there.Net(), 51871, netip.AddrPortFrom(there.Address, 51871))
		what := word()
		end := capture(t, env.Router(), what)
		must(t, here.Net(), netip.Addr{}, "http", at(address, env.HostPort+1), "--bytes", "1000000", "--word", what)
		if n := found(end()); n != 0 {
			t.Errorf("%d packets in the clear", n)
		}
	})
	t.Run("narrow path", func(t *testing.T) {
		here, there := alpha.Nodes[0], beta.Nodes[0]
		address := clusters.BarePair(t, here.Net(), there.Net(), 51872, netip.AddrPortFrom(there.Address, 51872))
		narrowed(t, alpha, beta)
		must(t, here.Net(), netip.Addr{}, "udp", at(address, env.HostPort), "--bytes", "1000")
		if _, err := ask(t, here.Net(), "http", at(address, env.HostPort+1), "--bytes", "1000000", "--timeout", "3s"); err == nil {
			t.Error("a tunnel that knows nothing of it passes large bodies all the same")
		}
	})
	t.Run("intruder", intruderIsHeard)
}

// intruderIsHeard lets a device without any filter take the place of alpha's gateway.
func intruderIsHeard(t *testing.T) {
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
	device := clusters.BareWireGuard(t, victim.Net(), "victim")
	device.Set(t, "private_key="+hex.EncodeToString(keys[1].Bytes()), "listen_port=51873",
		"public_key="+hex.EncodeToString(keys[0].PublicKey().Bytes()), "allowed_ip=0.0.0.0/0")
	evil := intrude(t, gamma, env.View{Here: gamma, There: alpha, Spec: network.TunnelEndpointSpec{
		EndpointIP:    victim.Address.String(),
		BackendConfig: map[string]string{"publicKey": base64.StdEncoding.EncodeToString(keys[1].PublicKey().Bytes()), "port": "51873"},
	}})
	what := word()
	end := capture(t, victim.Net(), what)
	evil.Handshake(t)
	evil.Run(t, filepath.Join(clusters.Bin, "traffic"), "send", "--link", intruder, "--from", "10.9.8.7", "--to", "10.90.0.10:53", "--word", what)
	<-time.After(300 * time.Millisecond) // as long as the hostile peer is given
	if n := found(end()); n < 5 {
		t.Errorf("%d packets of the intruder were seen at the other end of its tunnel, want 10", n)
	}
}
