// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/host/userspace"
	"liqo.io/liqo/internal/network/hoststate"
)

func newPeer(t *testing.T, allowed ...string) hoststate.WireGuardPeer {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	fatal(t, err)
	peer := hoststate.WireGuardPeer{PublicKey: key.PublicKey().String(), Keepalive: 25 * time.Second, Endpoint: netip.MustParseAddrPort("10.200.9.9:5000")}
	for _, one := range allowed {
		peer.AllowedIPs = append(peer.AllowedIPs, prefix(one))
	}
	return peer
}

func deviceNow(t *testing.T) *wgtypes.Device {
	t.Helper()
	device, err := readDevice()
	fatal(t, err)
	if device == nil {
		t.Fatal("there is no device")
	}
	return device
}

func TestWireGuardConfiguration(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	peers := []hoststate.WireGuardPeer{newPeer(t, "10.1.0.0/16", "10.2.0.0/16"), newPeer(t, "10.3.0.0/16"), newPeer(t)}
	want := hoststate.State{
		Links:     []hoststate.Link{{Name: hoststate.TunnelLink, Kind: hoststate.WireGuardLink, MTU: 1400}},
		WireGuard: &hoststate.WireGuard{PublicKey: h.key.PublicKey().String(), ListenPort: wireGuardPort, Peers: peers},
	}
	h.settled(want)
	if device := deviceNow(t); device.PrivateKey != h.key || device.ListenPort != wireGuardPort || len(device.Peers) != 3 {
		t.Errorf("device: port %d, %d peers, right key: %t", device.ListenPort, len(device.Peers), device.PrivateKey == h.key)
	}

	t.Run("networks move to another peer", func(t *testing.T) {
		peers[0].AllowedIPs, peers[2].AllowedIPs = peers[0].AllowedIPs[1:], peers[0].AllowedIPs[:1]
		if changes := h.settled(want); len(changes) != 2 {
			t.Errorf("changed %v", changes)
		}
		for _, one := range deviceNow(t).Peers {
			i := slices.IndexFunc(peers, func(p hoststate.WireGuardPeer) bool { return p.PublicKey == one.PublicKey.String() })
			if !sameNetworks(peers[i].AllowedIPs, one.AllowedIPs) {
				t.Errorf("peer %d has %v, want %v", i, one.AllowedIPs, peers[i].AllowedIPs)
			}
		}
	})
	t.Run("port and keepalive", func(t *testing.T) {
		want.WireGuard.ListenPort, peers[1].Keepalive = 5999, 5*time.Second
		if changes := h.settled(want); len(changes) != 2 || deviceNow(t).ListenPort != 5999 {
			t.Errorf("changed %v, port is %d", changes, deviceNow(t).ListenPort)
		}
	})
	t.Run("roaming is left alone", func(t *testing.T) {
		roamed := netip.MustParseAddrPort("10.200.9.44:4444")
		roam(t, peers[1].PublicKey, roamed)
		if changes := h.settled(want); len(changes) > 0 {
			t.Errorf("changed %v", changes)
		}
		if got := endpoint(t, h, peers[1].PublicKey); got != roamed {
			t.Errorf("endpoint is %s", got)
		}
		peers[1].Dial++
		if changes := h.settled(want); len(changes) != 1 {
			t.Errorf("dialling again changed %v", changes)
		}
		if got := endpoint(t, h, peers[1].PublicKey); got != peers[1].Endpoint {
			t.Errorf("dialled %s, want %s", got, peers[1].Endpoint)
		}
	})
	t.Run("unwanted peers go", func(t *testing.T) {
		want.WireGuard.Peers = peers[1:]
		if changes := h.settled(want); len(changes) != 1 || !strings.HasPrefix(changes[0], "delete peer "+peers[0].PublicKey) {
			t.Errorf("changed %v", changes)
		}
	})
	t.Run("unknown key", func(t *testing.T) {
		other := *want.WireGuard
		other.PublicKey = peers[0].PublicKey
		_, err := h.Apply(t.Context(), hoststate.State{Links: want.Links, WireGuard: &other})
		if err == nil || !strings.Contains(err.Error(), "no private key") {
			t.Errorf("error is %v", err)
		}
		if deviceNow(t).PrivateKey != h.key {
			t.Error("the private key is gone")
		}
	})
	t.Run("new key", func(t *testing.T) {
		next, err := wgtypes.GeneratePrivateKey()
		fatal(t, err)
		h.options.PrivateKey = func(string) ([32]byte, bool) { return next, true }
		want.WireGuard.PublicKey = next.PublicKey().String()
		if changes := h.settled(want); len(changes) != 1 || strings.Contains(strings.Join(changes, ""), next.String()) {
			t.Errorf("changed %v", changes)
		}
		if deviceNow(t).PrivateKey != next {
			t.Error("the private key is the old one")
		}
	})
}

// Each Dial starts a handshake at once. Without it WireGuard starts none within 5 seconds of the last.
func TestDialIsHandshake(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	fatal(t, err)
	defer socket.Close()
	peer := newPeer(t, "10.1.0.0/16")
	peer.Endpoint = socket.LocalAddr().(*net.UDPAddr).AddrPort()
	begun := time.Now()
	for dial := range 4 {
		peer.Dial = dial
		h.settled(hoststate.State{
			Links:     []hoststate.Link{{Name: hoststate.TunnelLink, Kind: hoststate.WireGuardLink, MTU: 1400}},
			WireGuard: &hoststate.WireGuard{PublicKey: h.key.PublicKey().String(), ListenPort: wireGuardPort, Peers: []hoststate.WireGuardPeer{peer}},
		})
		fatal(t, socket.SetReadDeadline(time.Now().Add(4*time.Second))) // WireGuard itself tries again five seconds after the last one
		packet := make([]byte, 1500)
		n, err := socket.Read(packet)
		if err != nil {
			t.Fatalf("dialled %d times: %v", dial+1, err)
		}
		const initiation, size = 1, 148
		if packet[0] != initiation || n != size {
			t.Errorf("dialled %d times: %d bytes of type %d, want the first message of a handshake", dial+1, n, packet[0])
		}
	}
	t.Logf("4 handshakes started in %v", time.Since(begun))
}

// Implementation does not wait for Apply.
func TestImplementationDoesNotWait(t *testing.T) {
	h := &Host{}
	h.mu.Lock()
	defer h.mu.Unlock()
	answered := make(chan string, 1)
	go func() { answered <- h.Implementation() }()
	select {
	case <-answered:
	case <-time.After(10 * time.Second):
		t.Error("Implementation waits for Apply")
	}
}

// roam sets another endpoint, as a packet from there would.
func roam(t *testing.T, peer string, to netip.AddrPort) {
	t.Helper()
	key, err := wgtypes.ParseKey(peer)
	fatal(t, err)
	fatal(t, withWireGuard(func(client *wgctrl.Client) error {
		config := wgtypes.PeerConfig{PublicKey: key, UpdateOnly: true, Endpoint: net.UDPAddrFromAddrPort(to)}
		return client.ConfigureDevice(hoststate.TunnelLink, wgtypes.Config{Peers: []wgtypes.PeerConfig{config}})
	}))
}

func endpoint(t *testing.T, h *here, peer string) netip.AddrPort {
	t.Helper()
	peers, err := h.Tunnel()
	fatal(t, err)
	for _, one := range peers {
		if one.PublicKey == peer {
			return one.Endpoint
		}
	}
	t.Fatalf("there is no peer %s", peer)
	return netip.AddrPort{}
}

// TestTUNNode creates a missing device node.
func TestTUNNode(t *testing.T) {
	if !isolated(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "net", "tun")
	fatal(t, userspace.EnsureTUN(path))
	fatal(t, userspace.EnsureTUN(path))
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestRestart kills a process and starts the next, which finds a dead control socket.
func TestRestart(t *testing.T) {
	if !isolated(t) {
		return
	}
	h := open(t)
	want := h.gateway()
	h.settled(want)
	healthy := snapshot(t)
	userspace := h.Implementation() == userspaceImplementation
	fatal(t, h.Close())

	if userspace {
		socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: "/var/run/wireguard/" + hoststate.TunnelLink + ".sock"})
		fatal(t, err)
		socket.SetUnlinkOnClose(false)
		fatal(t, socket.Close())
	}
	var err error
	h.Host, err = Open(h.options)
	fatal(t, err)
	if peers, err := h.Tunnel(); err != nil || userspace && peers != nil {
		t.Errorf("before anything is applied, the tunnel is %v, %v", peers, err)
	}
	for _, line := range h.settled(want) {
		if !strings.Contains(line, hoststate.TunnelLink) && !strings.Contains(line, "wireguard") && !strings.Contains(line, "peer") {
			t.Errorf("what outlives the process was changed: %s", line)
		}
	}
	if now := snapshot(t); now != healthy {
		t.Errorf("after a restart there is\n%s\nand there was\n%s", now, healthy)
	}
}
