// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// env runs probers on addresses of the loopback network, all on one port.
type env struct {
	t    *testing.T
	port uint16
}

func newEnv(t *testing.T) *env {
	t.Helper()
	conn, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return &env{t, conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()}
}

type prober struct {
	*Prober
	changed chan struct{}
	reports chan NodeReport
	stop    func()
}

// start runs a prober in a network namespace, 0 for the present one.
func (e *env) start(space netns.NsHandle, aim Aim) *prober {
	e.t.Helper()
	p := &prober{changed: make(chan struct{}, 1000), reports: make(chan NodeReport, 1000)}
	p.Prober = New(Options{Port: e.port, Changed: func() { p.changed <- struct{}{} }, Received: func(r NodeReport) { p.reports <- r }})
	p.Aim(aim)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if space != 0 {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if err := netns.Set(space); err != nil {
				e.t.Error(err)
				return
			}
		}
		_ = p.Run(ctx)
	})
	p.stop = func() { cancel(); running.Wait() }
	e.t.Cleanup(p.stop)
	return p
}

// until waits for changes until check holds.
func (p *prober) until(t *testing.T, what string, check func(map[Target]Result) bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for !check(p.Results()) {
		select {
		case <-p.changed:
		case <-deadline:
			t.Fatalf("%s: %+v, %v", what, p.Results(), p.Problem())
		}
	}
}

var fast = Pace{Up: 20 * time.Millisecond, Other: 20 * time.Millisecond}

func TestProbersMeet(t *testing.T) {
	e := newEnv(t)
	rome, milan, node := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("127.0.0.1")
	toMilan, toRome := Target{"milan", 1, milan}, Target{"rome", 1, rome}
	first := e.start(0, Aim{Local: rome, Pace: fast, Targets: []Target{toMilan}, MTU: 1420, Nodes: map[netip.Addr]string{node: "n1"}})
	second := e.start(0, Aim{Local: milan, Pace: fast, Targets: []Target{toRome}, MTU: 1380})
	first.until(t, "rome sees milan", func(r map[Target]Result) bool { return r[toMilan].State == Up && r[toMilan].MTU == 1420 })
	second.until(t, "milan sees rome", func(r map[Target]Result) bool { return r[toRome].State == Up && r[toRome].MTU == 1380 })

	observation := Observation{ClusterID: "milan", Lane: 1, Up: []int{1}}
	third := e.start(0, Aim{Pace: fast, Targets: []Target{toMilan}, Node: "n1", Gateways: []netip.Addr{rome}, Observations: []Observation{observation}})
	third.until(t, "a node sees milan", func(r map[Target]Result) bool { return r[toMilan].State == Up })
	select {
	case report := <-first.reports:
		if report.Node != "n1" || len(report.Observations) != 1 || report.Observations[0].Lane != 1 {
			t.Errorf("received %+v", report)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the gateway receives no report of its node")
	}

	second.stop()
	third.until(t, "the node sees that milan is gone", func(r map[Target]Result) bool { return r[toMilan].State == Down })
}

// A prober without replies works at its pace, and sleeps in between.
func TestProberSleeps(t *testing.T) {
	p := New(Options{})
	p.Aim(Aim{
		Pace: Pace{Up: 500 * time.Millisecond, Other: 500 * time.Millisecond}, MTU: 1420,
		Targets: []Target{{"milan", 0, netip.MustParseAddr("127.0.0.99")}},
	})
	defer p.closeSocket()
	steps, from := 0, time.Now()
	for now := from; now.Sub(from) < fresh+10*time.Second && steps < 1000; now, _ = p.step(now) {
		if now.Sub(from) > fresh {
			steps++
		}
	}
	if steps > 60 {
		t.Errorf("%d steps in ten seconds with a probe each half", steps)
	}
}

// The server answers requests only, with no more bytes than it received.
func TestNoAmplification(t *testing.T) {
	e := newEnv(t)
	gateway := netip.MustParseAddr("127.0.0.2")
	e.start(0, Aim{Local: gateway, Pace: fast})
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	to := netip.AddrPortFrom(gateway, e.port)
	send := func(packet []byte) {
		if _, err := conn.WriteToUDPAddrPort(packet, to); err != nil {
			t.Fatal(err)
		}
	}
	receive := func() int {
		buffer := make([]byte, 1<<16)
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	// The server opens its socket when it runs: ask until it answers. On a busy machine it may answer all of these later.
	const opening = 64
	for answered := false; !answered; {
		send(header{kind: echoRequest, sequence: 1}.write(nil, opening))
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := conn.Read(make([]byte, 1<<16))
		answered = err == nil
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	for _, kind := range []kind{echoReply, observations, 0, 9} {
		send(header{kind: kind}.write(nil, 100))
	}
	send([]byte("liqo"))
	send(nil)
	send(header{kind: echoRequest, sequence: 2}.write(nil, 333))
	n := receive()
	for n == opening {
		n = receive()
	}
	if n != 333 {
		t.Errorf("the first answer has %d bytes, want the echo of 333", n)
	}
	start := time.Now()
	for range 3 * echoBurst {
		send(header{kind: echoRequest, sequence: 3}.write(nil, headerSize))
	}
	answers := 0
	for wait := 10 * time.Second; ; wait = 200 * time.Millisecond {
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		if _, err := conn.Read(make([]byte, 100)); err != nil {
			break
		}
		answers++
	}
	if most := echoBurst + int(echoRate*time.Since(start).Seconds()) + 1; answers == 0 || answers > most {
		t.Errorf("%d answers to %d requests at once, want %d at most", answers, 3*echoBurst, most)
	}
}

// The path silently drops what is larger than its MTU.
func TestPathOnRealLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: network namespaces need root")
	}
	rome, milan := newSpace(t), newSpace(t)
	join(t, rome, milan)
	e := newEnv(t)
	one, two := netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("10.99.0.2")
	toMilan, toRome := Target{"milan", 0, two}, Target{"rome", 0, one}
	first := e.start(rome, Aim{Local: one, Pace: fast, Targets: []Target{toMilan}, MTU: 1420})
	second := e.start(milan, Aim{Local: two, Pace: fast, Targets: []Target{toRome}, MTU: 1280})
	// Rome's link takes 1420, milan's end of it 1280: what is larger is dropped there.
	first.until(t, "rome", func(r map[Target]Result) bool { return r[toMilan].MTU == 1280 })
	second.until(t, "milan", func(r map[Target]Result) bool { return r[toRome].MTU == 1280 })
}

func newSpace(t *testing.T) netns.NsHandle {
	t.Helper()
	made := make(chan netns.NsHandle)
	go func() {
		runtime.LockOSThread()
		space, err := netns.New()
		if err != nil {
			t.Error(err)
		}
		made <- space
	}()
	space := <-made
	t.Cleanup(func() { space.Close() })
	return space
}

func join(t *testing.T, rome, milan netns.NsHandle) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	here, err := netlink.NewHandleAt(rome)
	must(err)
	defer here.Close()
	there, err := netlink.NewHandleAt(milan)
	must(err)
	defer there.Close()
	must(here.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a", MTU: 1420}, PeerName: "b", PeerNamespace: netlink.NsFd(milan)}))
	for _, end := range []struct {
		handle  *netlink.Handle
		name    string
		address string
		mtu     int
	}{{here, "a", "10.99.0.1/24", 1420}, {there, "b", "10.99.0.2/24", 1280}} {
		link, err := end.handle.LinkByName(end.name)
		must(err)
		address, err := netlink.ParseAddr(end.address)
		must(err)
		must(end.handle.LinkSetMTU(link, end.mtu))
		must(end.handle.AddrAdd(link, address))
		must(end.handle.LinkSetUp(link))
	}
}
