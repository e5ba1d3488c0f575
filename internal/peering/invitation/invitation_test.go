// SPDX-License-Identifier: Apache-2.0

package invitation

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/netstack"
)

var address, proxy = netip.MustParseAddr("172.31.7.65"), netip.MustParseAddrPort("10.70.0.33:8118")

func valid(t testing.TB) Invitation {
	t.Helper()
	private, _, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return Invitation{
		PrivateKey: private, PublicKey: make([]byte, keySize), Endpoints: []string{"192.0.2.1:5871"}, Address: address, Proxy: proxy, User: "id",
		Pass: "pass",
	}
}

func TestText(t *testing.T) {
	want := valid(t)
	got, err := Parse("\n " + want.String() + "\n")
	if err != nil || got.String() != want.String() {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	if url := want.ProxyURL(); url != "http://id:pass@invitation.invalid:8118" {
		t.Errorf("the proxy is %s", url)
	}
	for name, change := range map[string]func(*Invitation){
		"no key":            func(i *Invitation) { i.PrivateKey = nil },
		"a short key":       func(i *Invitation) { i.PublicKey = i.PublicKey[1:] },
		"no endpoint":       func(i *Invitation) { i.Endpoints = nil },
		"many endpoints":    func(i *Invitation) { i.Endpoints = make([]string, maxEndpoints+1) },
		"no port":           func(i *Invitation) { i.Endpoints = []string{"192.0.2.1"} },
		"port 0":            func(i *Invitation) { i.Endpoints = []string{"192.0.2.1:0"} },
		"a setting":         func(i *Invitation) { i.Endpoints = []string{"192.0.2.1:1\nallowed_ip=0.0.0.0/0"} },
		"no address":        func(i *Invitation) { i.Address = netip.Addr{} },
		"IPv6":              func(i *Invitation) { i.Address = netip.MustParseAddr("fd00::1") },
		"its own proxy":     func(i *Invitation) { i.Proxy = netip.AddrPortFrom(i.Address, 8118) },
		"no port of proxy":  func(i *Invitation) { i.Proxy = netip.AddrPortFrom(i.Proxy.Addr(), 0) },
		"no pass":           func(i *Invitation) { i.Pass = "" },
		"a host in a pass":  func(i *Invitation) { i.Pass = "x@evil.example/" },
		"a colon in a user": func(i *Invitation) { i.User = "a:b" },
	} {
		bad := valid(t)
		change(&bad)
		if _, err := Parse(bad.String()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	text := want.String()
	for _, bad := range []string{"", "liqo1.", text[:len(text)-8], text[1:], "liqo2." + text[6:], text + "!", "liqo1." + strings.Repeat("A", maxText+1)} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%.20q: accepted", bad)
		} else if len(bad) > 20 && strings.Contains(err.Error(), bad[10:20]) {
			t.Errorf("the error repeats what is secret: %v", err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(valid(f).String())
	f.Add("liqo1.e30")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if i, err := Parse(text); err == nil {
			if again, err := Parse(i.String()); err != nil || again.String() != i.String() {
				t.Fatalf("%q is read as %+v, and that not again: %v", text, i, err)
			}
		}
	})
}

// gateway is the other end of an invitation: what arrives at the address of the proxy is answered, and other addresses are not there.
func gateway(t *testing.T) (endpoint string, public, inviteKey []byte) {
	t.Helper()
	private, public, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	inviteKey, invitePublic, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	inside, stack, err := netstack.CreateNetTUN([]netip.Addr{proxy.Addr()}, nil, mtu)
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.LocalAddr().(*net.UDPAddr).Port
	free.Close()
	made := device.NewDevice(inside, conn.NewDefaultBind(), &device.Logger{Verbosef: device.DiscardLogf, Errorf: t.Logf})
	t.Cleanup(made.Close)
	if err := made.IpcSet(fmt.Sprintf(
		"private_key=%s\nlisten_port=%d\npublic_key=%s\nallowed_ip=%s/32\n", hex.EncodeToString(private), port, hex.EncodeToString(invitePublic),
		address,
	)); err != nil {
		t.Fatal(err)
	}
	if err := made.Up(); err != nil {
		t.Fatal(err)
	}
	listener, err := stack.ListenTCPAddrPort(proxy)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				_, _ = io.Copy(connection, connection)
			}()
		}
	}()
	return fmt.Sprintf("127.0.0.1:%d", port), public, inviteKey
}

// TestDial: a connection to whatever address leads to the proxy of the provider, also if its first endpoint is silent; Close ends it.
func TestDial(t *testing.T) {
	endpoint, public, private := gateway(t)
	silent, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	i := valid(t)
	i.PrivateKey, i.PublicKey, i.Endpoints = private, public, []string{silent.LocalAddr().String(), endpoint}
	ways := &Ways{here: true}
	defer ways.Close("milan")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	echo := func() net.Conn {
		t.Helper()
		connection, err := ways.Dial("milan", i)(ctx, "tcp", "invitation.invalid:8118")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(connection, "hello"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 5)
		if _, err := io.ReadFull(connection, answer); err != nil || string(answer) != "hello" {
			t.Fatalf("%q, %v", answer, err)
		}
		return connection
	}
	first := echo()
	if len(ways.open) != 1 || ways.open["milan"].next != 1 {
		t.Errorf("the silent endpoint is in use")
	}
	second := echo() // at once, with the endpoint that answers
	defer second.Close()
	ways.Close("milan")
	_ = first.SetReadDeadline(time.Now().Add(time.Minute)) // a guard against hanging
	if n, err := first.Read(make([]byte, 1)); err == nil {
		t.Errorf("after Close, %d bytes are read", n)
	}
	if len(ways.open) != 0 {
		t.Error("after Close, a way is open")
	}
	echo() // it opens again
}

// TestWithdrawn: without an answer, the error names what to look at, and no secret.
func TestWithdrawn(t *testing.T) {
	endpoint, public, _ := gateway(t)
	i := valid(t) // with a key that the gateway does not know
	i.PublicKey, i.Endpoints = public, []string{endpoint, "no-such-host.invalid:5871"}
	ways := &Ways{here: true}
	defer ways.Close("milan")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := ways.Dial("milan", i)(ctx, "tcp", "invitation.invalid:8118")
	if err == nil || !strings.Contains(err.Error(), "withdrawn") || strings.Contains(err.Error(), hex.EncodeToString(i.PrivateKey)) {
		t.Errorf("the error is %v", err)
	}
}

// TestElsewhere: an invitation does not make this process send packets to its own host, or to what only its host reaches.
func TestElsewhere(t *testing.T) {
	for _, endpoint := range []string{"127.0.0.1:53", "169.254.169.254:80", "224.0.0.1:53", "0.0.0.0:53", "255.255.255.255:67"} {
		i := valid(t)
		i.Endpoints = []string{endpoint}
		ways := &Ways{}
		if _, err := ways.Dial("milan", i)(t.Context(), "tcp", ""); err == nil || !strings.Contains(err.Error(), "cannot be at") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}

// TestLostHandshake: if the first handshake is lost, the next try does not wait for WireGuard to repeat it, but has a tunnel and a port of its own.
func TestLostHandshake(t *testing.T) {
	endpoint, public, private := gateway(t)
	relay, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	behind, err := net.Dial("udp4", endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	callers := make(chan net.Addr, 1) // the one that is answered
	go func() {
		var first, second net.Addr
		for packet := make([]byte, 1<<16); ; {
			n, from, err := relay.ReadFrom(packet)
			switch {
			case err != nil:
				return
			case first == nil || from.String() == first.String():
				first = from
				continue
			case second == nil:
				second = from
				callers <- second
			}
			_, _ = behind.Write(packet[:n])
		}
	}()
	go func() {
		caller := <-callers
		for packet := make([]byte, 1<<16); ; {
			n, err := behind.Read(packet)
			if err != nil {
				return
			}
			_, _ = relay.WriteTo(packet[:n], caller)
		}
	}()
	i := valid(t)
	i.PrivateKey, i.PublicKey, i.Endpoints = private, public, []string{relay.LocalAddr().String()}
	ways := &Ways{here: true}
	defer ways.Close("milan")
	connection, err := ways.Dial("milan", i)(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	connection.Close()
}

// TestSlowProvider: while the gateway of one provider is looked up, which its DNS can make slow, neither the way to another one is waited for nor the
// end of the slow one's.
func TestSlowProvider(t *testing.T) {
	ways := &Ways{}
	ways.Dial("slow", valid(t))
	slow := ways.open["slow"]
	slow.mu.Lock() // as during a lookup
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ways.Close("slow")
	}()
	free := func() bool {
		if !ways.mu.TryLock() {
			return false
		}
		defer ways.mu.Unlock()
		return ways.open["slow"] == nil
	}
	for late := time.After(10 * time.Second); !free(); { // a guard against hanging
		select {
		case <-late:
			slow.mu.Unlock()
			t.Fatal("the end of the slow way keeps the others")
		case <-time.After(time.Millisecond):
		}
	}
	slow.mu.Unlock()
	<-ended
}

// TestClosed: who still has a way that was closed opens nothing, since nothing would close that.
func TestClosed(t *testing.T) {
	endpoint, public, private := gateway(t)
	i := valid(t)
	i.PrivateKey, i.PublicKey, i.Endpoints = private, public, []string{endpoint}
	ways := &Ways{here: true}
	dial, old := ways.Dial("milan", i), ways.open["milan"]
	ways.Close("milan")
	if _, err := dial(t.Context(), "tcp", ""); err == nil || old.device != nil {
		old.close()
		t.Errorf("a closed way is used: %v", err)
	}
}
