// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"liqo.io/liqo/playground/internal/fault"
)

// within fails unless got is in the range.
func within(t testing.TB, what string, got, low, high float64) {
	t.Helper()
	t.Logf("%s: %.4g (want %.4g to %.4g)", what, got, low, high)
	if got < low || got > high {
		t.Errorf("%s: got %g, want %g to %g", what, got, low, high)
	}
}

func TestDelay(t *testing.T) {
	l := newLab(t)
	l.startEmulator()
	rome, milan := l.rome.udp(romeAddress), l.milan.udp(milanAddress)
	milan.echo()
	// A busy machine makes a round trip longer, never shorter. So the fastest of as many as it takes is judged: it has at least the
	// delay of both directions, and less than twice that, which a packet delayed twice would have.
	sent := 0
	fastest := func(low, high float64) {
		t.Helper()
		sent += rome.fastest(milan, low, high)
	}

	fastest(0, 50)
	sent = 0 // the lines start to count when they are configured
	changes := l.apply(fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 50 * ms}))
	if len(changes) != 4 {
		t.Errorf("two pairs are new, want 2 lines and 2 rules, got changes %q", changes)
	}
	fastest(100, 199)
	if again := l.apply(fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 50 * ms})); len(again) != 0 {
		t.Errorf("applied twice: got changes %q", again)
	}
	if changed := l.apply(fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 2 * ms})); len(changed) != 2 {
		t.Errorf("two pairs have another delay, got changes %q", changed)
	}
	fastest(4, 50)

	l.apply(fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 20 * ms, Jitter: 10 * ms}))
	times := rome.roundTrips(milan, 40)
	sent += 40
	within(t, "slow round trip with 20±10 ms, ms", times[36].Seconds()*1000, 42, 1000)
	fastest(20, 40)

	status := l.status()
	for _, p := range status.Pairs {
		if p.Packets != uint64(sent) || p.Drops != 0 || p.Queue != 0 || p.Bytes != uint64(sent)*(20+8+8) {
			t.Errorf("pair %s: got counters %+v, want %d packets of 36 bytes", p.Pair, p.Counters, sent)
		}
	}
	if len(status.Pairs) != 2 || status.Ignored != 0 || status.Failures != 0 {
		t.Errorf("got status %+v, want two pairs and nothing ignored or failed", status)
	}
	if removed := l.apply(fault.State{}); len(removed) != 4 {
		t.Errorf("two pairs are gone, want 2 lines and 2 rules, got changes %q", removed)
	}
	fastest(0, 20)
}

func TestLoss(t *testing.T) {
	const packets = 8000 // 5 % of them: a standard deviation of 0.24 %
	l := newLab(t)
	l.startEmulator()
	rome, milan := l.rome.udp(romeAddress), l.milan.udp(milanAddress)
	within(t, "loss without a fault", rome.lossTo(milan, packets), 0, 0)
	state := fault.State{}.SetLoss("rome", "milan", 500)
	l.apply(state)
	within(t, "loss of 5 %, outbound", rome.lossTo(milan, packets), 0.035, 0.065)
	within(t, "loss of 5 %, inbound", milan.lossTo(rome, packets), 0.035, 0.065)
	// These packets are forwarded twice, yet must be lost only once.
	l.apply(state.SetDelay("rome", "milan", fault.Delay{Mean: 5 * ms}))
	within(t, "loss of 5 % with delay", rome.lossTo(milan, packets), 0.035, 0.065)
	l.apply(fault.State{})
	within(t, "loss after the fault", rome.lossTo(milan, packets), 0, 0)
}

// TestPartition cuts and heals the link, with and without the emulator in the way, while a TCP connection lives.
func TestPartition(t *testing.T) {
	const silence = 300 * ms // how long a packet that must not arrive is waited for
	for name, base := range map[string]fault.State{
		"plain":    {},
		"emulated": fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 5 * ms}),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.startEmulator()
			rome, milan := l.rome.udp(romeAddress), l.milan.udp(milanAddress)
			number := uint64(0)
			expect := func(fault string, from, to endpoint, arrives bool) {
				t.Helper()
				number++
				from.send(to, number)
				timeout := silence
				if arrives {
					timeout = 30 * time.Second
				}
				if got, ok := to.receive(timeout); ok != arrives || ok && got != number {
					t.Errorf("%s: packet %d arrived: %v (%d), want %v", fault, number, ok, got, arrives)
				}
			}
			l.apply(base)
			near, far := tcp(l.rome, l.milan, milanAddress)
			expect("healthy", rome, milan, true)
			expect("healthy", milan, rome, true)

			l.apply(base.Partition("rome", "milan", true))
			expect("cut from rome to milan", rome, milan, false)
			expect("cut from rome to milan", milan, rome, true)

			l.apply(base.Partition("rome", "milan", false))
			expect("cut", rome, milan, false)
			expect("cut", milan, rome, false)
			if _, err := near.Write([]byte("late")); err != nil {
				t.Fatal(err)
			}
			if err := far.SetReadDeadline(time.Now().Add(silence)); err != nil {
				t.Fatal(err)
			}
			if n, err := far.Read(make([]byte, 4)); err == nil {
				t.Errorf("cut: an established connection received %d bytes", n)
			}

			l.apply(base.Partition("rome", "milan", false).Heal("milan", "rome"))
			expect("healed", rome, milan, true)
			expect("healed", milan, rome, true)
			if err := far.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			data := make([]byte, 4)
			if _, err := io.ReadFull(far, data); err != nil || string(data) != "late" {
				t.Errorf("healed: the connection received %q, %v", data, err)
			}
		})
	}
}

// TestPartitionLosesHeldPackets cuts the link while a packet is held: the packet is lost, as on a cut cable.
func TestPartitionLosesHeldPackets(t *testing.T) {
	l := newLab(t)
	l.startEmulator()
	rome, milan := l.rome.udp(romeAddress), l.milan.udp(milanAddress)
	slow := fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 10 * time.Second})
	fast := fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: ms})
	l.apply(slow)
	rome.send(milan, 1)
	l.waitForQueue(1)
	l.apply(slow.Partition("rome", "milan", false))
	l.apply(fast.Partition("rome", "milan", false)) // the packet leaves the line
	l.waitForQueue(0)
	l.apply(fast)
	rome.send(milan, 2) // packets stay in order
	if got, ok := milan.receive(30 * time.Second); !ok || got != 2 {
		t.Errorf("after the link was healed: packet %d, %t, want the one that was sent then", got, ok)
	}
}

// TestBandwidth: whatever the machine does meanwhile, no more arrives than the limit allows in the time since the start. How much less
// arrives depends on the machine: the lower bound only detects a limit that is far too small. BenchmarkThroughput measures speed.
func TestBandwidth(t *testing.T) {
	l := newLab(t)
	l.startEmulator()
	for _, test := range []struct {
		mbit, delay int
		near, far   namespace
		address     net.IP
	}{{50, 0, l.rome, l.milan, milanAddress}, {20, 10, l.milan, l.rome, romeAddress}} {
		l.apply(fault.State{}.SetBandwidth("rome", "milan", fault.Rate(test.mbit)*fault.Megabit).
			SetDelay("rome", "milan", fault.Delay{Mean: time.Duration(test.delay) * ms}))
		start := time.Now() // nothing was sent before
		near, far := tcp(test.near, test.far, test.address)
		arrived := &counting{Conn: far}
		speed := throughput(t, near, arrived, time.Second, 2*time.Second)
		rate := float64(test.mbit) * 1e6 / 8 // bytes a second
		within(t, "bytes that arrived, of those allowed", float64(arrived.bytes)/(rate*time.Since(start).Seconds()), 0.01, 1)
		within(t, "TCP, share of the limit", speed/8/rate, 0.1, 1e6)
		_ = near.Close()
	}
}

// counting counts the bytes read from a connection.
type counting struct {
	net.Conn
	bytes int
}

func (c *counting) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	c.bytes += n
	return n, err
}

// TestBuffer sends 2.9 MB at once into a line of 1 Mbit/s, which holds bufferBytes. What passes is that, and what the line sends until the last
// packet has arrived. TestScheduleDepartures has the exact limit.
func TestBuffer(t *testing.T) {
	const packets, size = 2000, 1428 // 1400 bytes, UDP and IP header
	l := newLab(t)
	l.startEmulator()
	l.apply(fault.State{}.SetBandwidth("rome", "milan", fault.Megabit))
	rome, milan := l.rome.udp(romeAddress), l.milan.udp(milanAddress)
	start := time.Now()
	for range packets {
		if _, err := rome.WriteTo(make([]byte, size-28), milan.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	elapsed := time.Since(start)
	for _, ok := milan.receive(time.Second); ok; _, ok = milan.receive(time.Second) {
		elapsed = time.Since(start)
	}
	p := l.pair("br1")
	within(t, "packets through the buffer", float64(p.Packets), bufferBytes/size, 1.1*(bufferBytes+1e6/8*elapsed.Seconds())/size+1)
	within(t, "packets through the buffer and dropped", float64(p.Packets+p.Drops), 0.9*packets, packets)
	if p.Queue != 0 {
		t.Errorf("%d packets are still held", p.Queue)
	}
}

// TestKilledAndStopped: traffic flows without the emulator. After a kill the next start removes what is left; a stop leaves nothing.
func TestKilledAndStopped(t *testing.T) {
	l := newLab(t)
	l.startEmulator()
	rome, milan := l.rome.udp(romeAddress), l.milan.udp(milanAddress)
	milan.echo()
	slow := fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 20 * ms})
	rules := func() int { return strings.Count(l.router.run("", "ip", "rule"), "lookup 100") }
	l.apply(slow)
	within(t, "rules in force", float64(rules()), 2, 2)

	l.stopEmulator(syscall.SIGKILL)
	within(t, "rules after a kill", float64(rules()), 2, 2)
	rome.fastest(milan, 0, 40)

	l.startEmulator() // finds a stale socket file as well
	within(t, "rules after the restart", float64(rules()), 0, 0)
	l.apply(slow)
	rome.fastest(milan, 40, 80)

	second := exec.Command("/proc/self/exe")
	second.Env = append(os.Environ(), socketVariable+"="+filepath.Join(t.TempDir(), "other"))
	var refused error
	l.router.in(func() error { _, refused = second.Output(); return nil })
	if refused == nil {
		t.Error("a second emulator ran in the same namespace")
	}
	within(t, "rules after a second emulator was refused", float64(rules()), 2, 2)

	l.apply(fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 9 * time.Second}))
	rome.send(milan, 7)
	l.waitForQueue(1)
	l.stopEmulator(syscall.SIGTERM)
	if _, ok := rome.receive(30 * time.Second); !ok {
		t.Error("the packet that was held when the emulator stopped is lost")
	}
	within(t, "rules after the end", float64(rules()), 0, 0)
	if links := l.router.run("", "ip", "link"); strings.Contains(links, Device) {
		t.Errorf("the device is still there:\n%s", links)
	}
	if _, err := os.Stat(l.socket); !os.IsNotExist(err) {
		t.Errorf("the socket file is still there: %v", err)
	}
}

// TestApplyRefuses: a wrong configuration changes nothing and the reason reaches the caller.
func TestApplyRefuses(t *testing.T) {
	l := newLab(t)
	l.startEmulator()
	l.apply(fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: ms}))
	v6 := fault.Emulation{Pairs: []fault.Pair{pair("br1", "fd00:1::/64", "fd00:2::/64")}}
	if _, err := Apply(context.Background(), l.socket, v6); err == nil || !strings.Contains(err.Error(), "IPv4 only") {
		t.Errorf("got error %v, want one with \"IPv4 only\"", err)
	}
	if status, err := ReadStatus(context.Background(), l.socket); err != nil || len(status.Pairs) != 2 {
		t.Errorf("after a refusal: got %+v, %v, want the two pairs from before", status, err)
	}
}

// TestForeignPackets puts IPv6 and other packets that no pair wants into the device.
func TestForeignPackets(t *testing.T) {
	l := newLab(t)
	l.startEmulator()
	rome, milan := l.rome.udp(romeAddress), l.milan.udp(milanAddress)
	milan.echo()
	l.router.in(func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/"+Device+"/disable_ipv6", []byte("0"), 0o644)
	})
	// Without duplicate address detection, the address can be used at once.
	l.router.run("", "ip", "-6", "address", "add", "fd00::2/64", "dev", Device, "nodad")
	l.router.run("", "ip", "rule", "add", "iif", "br1", "lookup", "100", "priority", "500")
	l.router.in(func() error {
		conn, err := net.Dial("udp6", "[fd00::1]:9")
		if err != nil {
			return err
		}
		_, err = conn.Write([]byte("x"))
		return err
	})
	rome.roundTrips(milan, 5)
	if status := l.status(); status.Passed != 5 || status.Ignored == 0 {
		t.Errorf("got status %+v, want 5 packets passed and some ignored", status)
	}
}

// TestPathMTU: a packet that is too large for the link behind the emulator is answered with the MTU of that link.
func TestPathMTU(t *testing.T) {
	l := newLab(t)
	l.startEmulator()
	l.apply(fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: ms}))
	l.router.run("", "ip", "link", "set", "br2", "mtu", "1300")
	near, far := tcp(l.rome, l.milan, milanAddress)
	within(t, "TCP with path MTU discovery, Mbit/s", throughput(t, near, far, 100*ms, 300*ms)/1e6, 0.1, 1e6)
	if route := l.rome.run("", "ip", "route", "get", milanAddress.String()); !strings.Contains(route, "mtu 1300") {
		t.Errorf("rome did not learn the MTU: %s", route)
	}
}

// TestScriptsAreAccepted lets nft read every script that package fault promises.
func TestScriptsAreAccepted(t *testing.T) {
	l := newLab(t)
	files, err := filepath.Glob("../fault/testdata/*.golden")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		golden, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut(string(golden), "# emulation")
		l.router.run(script, "nft", "-f", "-")
		l.router.run(script, "nft", "-f", "-") // replaces itself
		if has := strings.Contains(l.router.run("", "nft", "list", "ruleset"), fault.Table); has != strings.Contains(script, "chain") {
			t.Errorf("%s: the table is there: %v", file, has)
		}
	}
}

// BenchmarkThroughput is one TCP connection over a link with 20 ms of delay.
func BenchmarkThroughput(b *testing.B) {
	for b.Loop() {
		l := newLab(b)
		l.startEmulator()
		l.apply(fault.State{}.SetDelay("rome", "milan", fault.Delay{Mean: 20 * ms}))
		near, far := tcp(l.rome, l.milan, milanAddress)
		b.ReportMetric(throughput(b, near, far, 2*time.Second, 5*time.Second)/1e6, "Mbit/s")
	}
}
