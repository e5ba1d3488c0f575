// SPDX-License-Identifier: Apache-2.0

package netem

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"liqo.io/liqo/playground/internal/fault"
)

// socketVariable makes the test binary an emulator: the tests start it again, in the router's namespace, so that they can kill it.
const socketVariable = "NETEM_TEST_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(socketVariable); socket != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := Run(ctx, socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// namespace is a network namespace without a name: it disappears with its last user, whatever happens to the test.
type namespace struct {
	t  testing.TB
	fd netns.NsHandle
}

func newNamespace(t testing.TB) namespace {
	t.Helper()
	n := namespace{t: t, fd: -1}
	n.thread(func() (err error) {
		n.fd, err = netns.New()
		return err
	})
	t.Cleanup(func() { _ = n.fd.Close() })
	return n
}

// thread runs a function on a thread of its own, which ends afterwards: no other goroutine can get a thread in a wrong namespace.
func (n namespace) thread(f func() error) {
	n.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	if err := <-done; err != nil {
		n.t.Fatal(err)
	}
}

// in runs a function in the namespace. Sockets and processes that it makes stay there.
func (n namespace) in(f func() error) {
	n.t.Helper()
	n.thread(func() error {
		if err := netns.Set(n.fd); err != nil {
			return fmt.Errorf("enter namespace: %w", err)
		}
		return f()
	})
}

// run runs a program in the namespace and returns its output.
func (n namespace) run(stdin string, command ...string) string {
	n.t.Helper()
	var out []byte
	n.in(func() (err error) {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Stdin = strings.NewReader(stdin)
		if out, err = cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", command, err, out)
		}
		return nil
	})
	return string(out)
}

// lab is two hosts, rome and milan, joined by a router:
//
//	rome 10.210.1.10 ── br1 (10.210.1.1) router (10.210.2.1) br2 ── 10.210.2.10 milan
type lab struct {
	t                   testing.TB
	router, rome, milan namespace
	socket              string
	emulator            *exec.Cmd
	stderr              *bytes.Buffer
}

var (
	romeAddress  = net.IPv4(10, 210, 1, 10)
	milanAddress = net.IPv4(10, 210, 2, 10)
	topology     = fault.Topology{
		"rome":  {Prefix: netip.MustParsePrefix("10.210.1.0/24"), Interface: "br1"},
		"milan": {Prefix: netip.MustParsePrefix("10.210.2.0/24"), Interface: "br2"},
	}
)

func newLab(t testing.TB) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root, for network namespaces, a TUN device and nft")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Fatalf("nft is missing: apt-get install nftables: %v", err)
	}
	l := &lab{t: t, router: newNamespace(t), rome: newNamespace(t), milan: newNamespace(t), socket: filepath.Join(t.TempDir(), "socket")}
	l.router.in(func() error {
		// The settings of a careful distribution; the emulator has to cope.
		for key, value := range map[string]string{"ip_forward": "1", "conf/all/rp_filter": "1", "conf/default/rp_filter": "1"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/"+key, []byte(value), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	l.connect("br1", "10.210.1.1", l.rome, romeAddress)
	l.connect("br2", "10.210.2.1", l.milan, milanAddress)
	return l
}

// connect joins a host and the router by a veth pair, and gives the host its default route.
func (l *lab) connect(name, gateway string, host namespace, address net.IP) {
	l.t.Helper()
	mask := net.CIDRMask(24, 32)
	l.router.in(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(host.fd)}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add veth %s: %w", name, err)
		}
		return start(name, &net.IPNet{IP: net.ParseIP(gateway), Mask: mask})
	})
	host.in(func() error {
		if err := start("eth0", &net.IPNet{IP: address, Mask: mask}); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)})
	})
}

func start(name string, address *net.IPNet) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: address}); err != nil {
		return fmt.Errorf("add address %s to %s: %w", address, name, err)
	}
	return netlink.LinkSetUp(link)
}

// startEmulator starts an emulator process in the router and waits until it answers.
func (l *lab) startEmulator() {
	l.t.Helper()
	l.emulator = exec.Command("/proc/self/exe")
	l.emulator.Env = append(os.Environ(), socketVariable+"="+l.socket)
	l.stderr = &bytes.Buffer{}
	l.emulator.Stderr = l.stderr
	l.router.in(l.emulator.Start)
	emulator := l.emulator
	l.t.Cleanup(func() {
		if emulator.ProcessState == nil {
			_ = emulator.Process.Kill()
			_ = emulator.Wait()
		}
	})
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, err := ReadStatus(context.Background(), l.socket)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			_ = emulator.Process.Kill()
			_ = emulator.Wait()
			l.t.Fatalf("the emulator does not answer: %v\n%s", err, l.stderr)
		}
		time.Sleep(5 * time.Millisecond) // the interval of polling: the process has no other way to report that it is ready
	}
}

// stopEmulator sends a signal and waits for the end of the process.
func (l *lab) stopEmulator(with syscall.Signal) {
	l.t.Helper()
	if err := l.emulator.Process.Signal(with); err != nil {
		l.t.Fatal(err)
	}
	if err := l.emulator.Wait(); err != nil && with == syscall.SIGTERM {
		l.t.Errorf("the emulator ended badly: %v\n%s", err, l.stderr)
	}
}

// apply puts the faults in force, as the playground does, and returns what the emulator changed.
func (l *lab) apply(state fault.State) []string {
	l.t.Helper()
	plan, err := fault.NewPlan(state, topology)
	if err != nil {
		l.t.Fatal(err)
	}
	l.router.run(plan.NFT, "nft", "-f", "-")
	changes, err := Apply(context.Background(), l.socket, plan.Emulation)
	if err != nil {
		l.t.Fatal(err)
	}
	return changes
}

func (l *lab) status() Status {
	l.t.Helper()
	status, err := ReadStatus(context.Background(), l.socket)
	if err != nil {
		l.t.Fatal(err)
	}
	return status
}

// pair returns the line of the packets that come in at a device of the router.
func (l *lab) pair(ingress string) PairStatus {
	l.t.Helper()
	for _, p := range l.status().Pairs {
		if p.Ingress == ingress {
			return p
		}
	}
	l.t.Fatalf("no pair has the ingress %s", ingress)
	return PairStatus{}
}

// waitForQueue waits until the emulator holds that many packets.
func (l *lab) waitForQueue(want int) {
	l.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		queue := 0
		for _, p := range l.status().Pairs {
			queue += p.Queue
		}
		if queue == want {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("the emulator holds %d packets, want %d", queue, want)
		}
	}
}
