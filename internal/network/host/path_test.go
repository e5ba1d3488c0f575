// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/host/kernel"
	"liqo.io/liqo/internal/network/hoststate"
)

// Two clusters with the same networks: pods 10.200.0.0/16, nodes 10.70.0.0/24. Each has a pod, its node, and a gateway.
//
//	pod ── node ══ VXLAN ══ gateway ══ WireGuard ══ gateway ══ VXLAN ══ node ── pod
const (
	pods, nodes    = "10.200.0.0/16", "10.70.0.0/24"
	podIP, nodeIP  = "10.200.1.5", "10.70.0.1"
	fabricMTU      = 1420
	wireGuardPort  = 5871
	gatewayOverlay = "169.254.99.10"
	nodeOverlay    = "169.254.99.101"
)

var (
	nodeMAC    = hoststate.MAC{2, 0xfa, 0xb0, 0, 1, 1}
	gatewayMAC = hoststate.MAC{2, 0xfa, 0xb0, 0, 0, 0x0a}
)

// cluster is one of the two.
type cluster struct {
	node, gateway *remote
	pod           netns.NsHandle
	// wan is the gateway's address between the clusters.
	wan netip.Addr
	key wgtypes.Key
	// The prefixes under which the peer reaches our networks, and under which we reach the peer's.
	podsThere, nodesThere, podsHere, nodesHere string
}

func (c *cluster) nodeState() hoststate.State {
	var state hoststate.State
	state.Links = []hoststate.Link{
		{Name: hoststate.VXLANLink, Kind: hoststate.VXLAN, MTU: fabricMTU, MAC: nodeMAC, Local: addr("10.200.9.1"), Port: hoststate.DefaultVXLANPort},
	}
	state.Addresses = []hoststate.Address{{Link: hoststate.VXLANLink, Prefix: prefix(nodeIP + "/32")}}
	state.Neighbours = []hoststate.Neighbour{{Link: hoststate.VXLANLink, Address: addr(gatewayOverlay), MAC: gatewayMAC, Destination: addr("10.200.9.2")}}
	for i, to := range []string{c.podsHere, c.nodesHere} {
		state.Routes = append(state.Routes, hoststate.Route{
			Table: hoststate.Table, To: prefix(to), Via: addr(gatewayOverlay), Link: hoststate.VXLANLink, Source: addr(nodeIP),
		})
		state.Rules = append(state.Rules, hoststate.Rule{Priority: hoststate.FirstRule + i, To: prefix(to), Table: hoststate.Table})
	}
	notrack := []hoststate.PacketRule{{Protocol: "udp", Port: hoststate.DefaultVXLANPort, Verb: hoststate.NoTrack}}
	state.Chains = []hoststate.Chain{
		{Name: "raw_in", Hook: hoststate.Prerouting, Priority: -300, Rules: notrack},
		{Name: "raw_out", Hook: hoststate.Output, Priority: -300, Rules: notrack},
		{Name: "senders", Hook: hoststate.Input, Rules: []hoststate.PacketRule{
			{Protocol: "udp", Port: hoststate.DefaultVXLANPort, FromNot: []netip.Addr{addr("10.200.9.2"), addr("10.200.9.9")}, Verb: hoststate.Drop},
		}},
		{Name: "sources", NAT: true, Hook: hoststate.Postrouting, Priority: -150, Rules: []hoststate.PacketRule{
			{Out: hoststate.VXLANLink, From: prefix(pods), Verb: hoststate.KeepSource},
		}},
	}
	return state
}

func (c *cluster) gatewayState(peer *cluster) hoststate.State {
	var state hoststate.State
	state.Links = []hoststate.Link{
		{Name: hoststate.VXLANLink, Kind: hoststate.VXLAN, MTU: fabricMTU, MAC: gatewayMAC, Local: addr("10.200.9.2"), Port: hoststate.DefaultVXLANPort},
		{Name: hoststate.TunnelLink, Kind: hoststate.WireGuardLink, MTU: fabricMTU},
	}
	state.Addresses = []hoststate.Address{{Link: hoststate.VXLANLink, Prefix: prefix(gatewayOverlay + "/32")}}
	state.Neighbours = []hoststate.Neighbour{{Link: hoststate.VXLANLink, Address: addr(nodeOverlay), MAC: nodeMAC, Destination: addr("10.200.9.1")}}
	for _, to := range []string{pods, nodeIP + "/32"} {
		state.Routes = append(state.Routes, hoststate.Route{Table: hoststate.Table, To: prefix(to), Via: addr(nodeOverlay), Link: hoststate.VXLANLink})
	}
	for _, to := range []string{c.podsHere, c.nodesHere} {
		state.Routes = append(state.Routes,
			hoststate.Route{Table: hoststate.MainTable, To: prefix(to), Link: hoststate.TunnelLink},
			hoststate.Route{Table: hoststate.MainTable, To: prefix(to), Blackhole: true, Metric: 9999})
	}
	state.Rules = []hoststate.Rule{
		{Priority: hoststate.FirstRule, InLink: hoststate.TunnelLink, Table: hoststate.Table},
		{Priority: hoststate.FirstRule + 2, Protocol: "icmp", To: prefix(pods), Table: hoststate.Table},
		{Priority: hoststate.FirstRule + 2, Protocol: "icmp", To: prefix(nodes), Table: hoststate.Table},
	}
	state.Chains = c.translation()
	state.WireGuard = &hoststate.WireGuard{PublicKey: c.key.PublicKey().String(), ListenPort: wireGuardPort, Peers: []hoststate.WireGuardPeer{{
		PublicKey: peer.key.PublicKey().String(), AllowedIPs: []netip.Prefix{prefix("0.0.0.0/0")}, Keepalive: 5 * time.Second,
	}}}
	return state
}

func (c *cluster) translation() []hoststate.Chain {
	var in, out, innerIn, innerOut []hoststate.PacketRule
	for own, seen := range map[netip.Prefix]netip.Prefix{prefix(pods): prefix(c.podsThere), prefix(nodes): prefix(c.nodesThere)} {
		innerIn = append(innerIn, hoststate.PacketRule{In: hoststate.TunnelLink, Inner: seen, Verb: hoststate.SwapInnerSource, Network: own})
		in = append(in, hoststate.PacketRule{In: hoststate.TunnelLink, To: seen, Verb: hoststate.SwapDestination, Network: own})
		innerOut = append(innerOut, hoststate.PacketRule{Out: hoststate.TunnelLink, Inner: own, Verb: hoststate.SwapInnerDestination, Network: seen})
		out = append(out, hoststate.PacketRule{Out: hoststate.TunnelLink, From: own, Verb: hoststate.SwapSource, Network: seen})
	}
	// Each swap ends its chain; all other packets are dropped, as in the plan.
	return []hoststate.Chain{
		{Name: "errors_in", Hook: hoststate.Prerouting, Priority: -301, Rules: innerIn},
		{Name: "incoming", Hook: hoststate.Prerouting, Priority: -300, Rules: append(in, hoststate.PacketRule{In: hoststate.TunnelLink, Verb: hoststate.Drop})},
		{Name: "forwarding", Hook: hoststate.Forward, Priority: -150, Rules: []hoststate.PacketRule{{Verb: hoststate.ClampMSS, MSS: fabricMTU - 40}}},
		{Name: "errors_out", Hook: hoststate.Postrouting, Priority: 109, Rules: innerOut},
		{Name: "outgoing", Hook: hoststate.Postrouting, Priority: 110, Rules: append(out, hoststate.PacketRule{Out: hoststate.TunnelLink, Verb: hoststate.Drop})},
	}
}

func addr(text string) netip.Addr     { return netip.MustParseAddr(text) }
func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// connect links two namespaces by a veth pair, with addresses.
func connect(t *testing.T, a, b netns.NsHandle, nameA, nameB, addressA, addressB string) {
	t.Helper()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = nameA
	inside(t, a, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: nameB, PeerNamespace: netlink.NsFd(int(b))})
	})
	for _, end := range []struct {
		ns            netns.NsHandle
		name, address string
	}{{a, nameA, addressA}, {b, nameB, addressB}} {
		inside(t, end.ns, func() error {
			link, err := netlink.LinkByName(end.name)
			if err != nil {
				return err
			}
			return errors.Join(netlink.AddrAdd(link, &netlink.Addr{IPNet: kernel.IPNet(prefix(end.address))}), netlink.LinkSetUp(link))
		})
	}
}

func newCluster(t *testing.T, name string) *cluster {
	c := &cluster{node: newRemote(t, name+" node"), gateway: newRemote(t, name+" gateway"), pod: newNamespace(t)}
	connect(t, c.node.ns, c.pod, "pod0", "eth0", "10.200.1.1/24", podIP+"/24")
	connect(t, c.node.ns, c.gateway.ns, "eth0", "eth0", "10.200.9.1/24", "10.200.9.2/24")
	inside(t, c.pod, func() error { return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("10.200.1.1")}) })
	for _, ns := range []netns.NsHandle{c.node.ns, c.gateway.ns} {
		inside(t, ns, func() error {
			return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
				os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0))
		})
	}
	masquerade(t, c.node.ns, hoststate.PacketRule{From: prefix(pods), Verb: hoststate.Masquerade})
	var err error
	c.key, err = wgtypes.GeneratePrivateKey()
	fatal(t, err)
	return c
}

func TestDataPath(t *testing.T) {
	if !isolated(t) {
		return
	}
	rome, milan := newCluster(t, "rome"), newCluster(t, "milan")
	connect(t, rome.gateway.ns, milan.gateway.ns, "wan", "wan", "192.0.2.1/24", "192.0.2.2/24")
	rome.wan, milan.wan = addr("192.0.2.1"), addr("192.0.2.2")
	rome.podsHere, rome.nodesHere, rome.podsThere, rome.nodesThere = "10.201.0.0/16", "10.74.0.0/24", "10.202.0.0/16", "10.73.0.0/24"
	milan.podsHere, milan.nodesHere, milan.podsThere, milan.nodesThere = rome.podsThere, rome.nodesThere, rome.podsHere, rome.nodesHere

	states := map[*remote]hostRequest{}
	for c, peer := range map[*cluster]*cluster{rome: milan, milan: rome} {
		states[c.node] = hostRequest{Want: c.nodeState()}
		states[c.gateway] = hostRequest{Want: c.gatewayState(peer), Keys: map[string][32]byte{c.key.PublicKey().String(): c.key}}
	}
	// Only rome dials, and milan learns rome's address. Milan is applied first, because a lost handshake costs five seconds.
	states[rome.gateway].Want.WireGuard.Peers[0].Endpoint = netip.AddrPortFrom(milan.wan, wireGuardPort)
	for _, host := range []*remote{milan.node, milan.gateway, rome.node, rome.gateway} {
		for _, change := range host.apply(t, states[host]).Changes {
			t.Log(host.name, change)
		}
		if again := host.apply(t, states[host]).Changes; len(again) > 0 {
			t.Errorf("%s: applying the same again changed %v", host.name, again)
		}
	}

	const toMilan, toRome = "10.201.1.5", "10.202.1.5"
	t.Run("tcp", func(t *testing.T) {
		transfer(t, rome.pod, milan.pod, toMilan, "10.202.1.5", 10<<20)
		transfer(t, milan.pod, rome.pod, toRome, "10.201.1.5", 10<<20)
	})
	t.Run("udp", func(t *testing.T) {
		for _, size := range []int{1, 1392, 20000} {
			datagram(t, rome.pod, milan.pod, toMilan, "10.202.1.5", size)
			datagram(t, milan.pod, rome.pod, toRome, "10.201.1.5", size)
		}
	})
	t.Run("from node", func(t *testing.T) {
		transfer(t, rome.node.ns, milan.pod, toMilan, "10.73.0.1", 1<<20)
		datagram(t, milan.node.ns, rome.pod, toRome, "10.74.0.1", 100)
	})
	t.Run("to node", func(t *testing.T) {
		transfer(t, rome.pod, milan.node.ns, "10.74.0.1", "10.202.1.5", 1<<20)
	})
	t.Run("refused", func(t *testing.T) {
		refused(t, rome.pod, toMilan)
		refused(t, milan.pod, toRome)
		refused(t, rome.node.ns, toMilan)
	})
	t.Run("smaller remote MTU", func(t *testing.T) {
		request := states[milan.gateway]
		request.Want.Links[0].MTU = 1300
		milan.gateway.apply(t, request)
		transfer(t, rome.pod, milan.pod, toMilan, "10.202.1.5", 3<<20)
		inside(t, rome.pod, func() error {
			mtu, _, err := PathMTU(addr(toMilan))
			if err == nil && mtu != 1300 {
				err = fmt.Errorf("the pod has learnt a path MTU of %d, want 1300", mtu)
			}
			return err
		})
	})
	t.Run("nothing is tracked in gateways", func(t *testing.T) {
		inside(t, rome.gateway.ns, func() error {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
			if err == nil && len(flows) > 0 {
				err = fmt.Errorf("tracked: %v", flows)
			}
			return err
		})
	})
	t.Run("tunnel", func(t *testing.T) {
		peers := milan.gateway.apply(t, states[milan.gateway]).Tunnel
		if len(peers) != 1 || peers[0].Endpoint != netip.AddrPortFrom(rome.wan, wireGuardPort) || time.Since(peers[0].LastHandshake) > time.Minute ||
			peers[0].ReceiveBytes < 10<<20 || peers[0].TransmitBytes < 10<<20 {
			t.Errorf("milan's tunnel: %+v", peers)
		}
	})
}

// transfer sends bytes over TCP and checks their sum and the source address at the server.
func transfer(t *testing.T, from, to netns.NsHandle, address, seen string, size int) {
	t.Helper()
	var listener net.Listener
	inside(t, to, func() (err error) { listener, err = net.Listen("tcp4", ":7000"); return err })
	defer listener.Close()
	type result struct {
		from string
		sum  [32]byte
		err  error
	}
	results := make(chan result, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			results <- result{err: err}
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		hash := sha256.New()
		_, err = io.Copy(hash, conn)
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		results <- result{host, [32]byte(hash.Sum(nil)), err}
	}()
	body := make([]byte, size)
	_, _ = rand.Read(body)
	var conn net.Conn
	inside(t, from, func() (err error) {
		conn, err = net.DialTimeout("tcp4", address+":7000", 10*time.Second)
		return err
	})
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	_, err := conn.Write(body)
	fatal(t, errors.Join(err, conn.Close()))
	got := <-results
	fatal(t, got.err)
	if got.from != seen || got.sum != sha256.Sum256(body) {
		t.Errorf("server at %s: seen %s, want %s; body is intact: %t", address, got.from, seen, got.sum == sha256.Sum256(body))
	}
}

// datagram sends a datagram over UDP and checks the answer and the source address at the server.
func datagram(t *testing.T, from, to netns.NsHandle, address, seen string, size int) {
	t.Helper()
	var server net.PacketConn
	inside(t, to, func() (err error) { server, err = net.ListenPacket("udp4", ":7000"); return err })
	defer server.Close()
	client := dialUDP(t, from, address)
	defer client.Close()
	body := make([]byte, size)
	_, _ = rand.Read(body)
	_, err := client.Write(body)
	fatal(t, err)
	deadline := time.Now().Add(5 * time.Second)
	_ = server.SetDeadline(deadline)
	_ = client.SetDeadline(deadline)
	buffer := make([]byte, 65536)
	n, sender, err := server.ReadFrom(buffer)
	fatal(t, err)
	if host, _, _ := net.SplitHostPort(sender.String()); host != seen || !bytes.Equal(buffer[:n], body) {
		t.Errorf("server at %s: seen %s, want %s; %d of %d bytes", address, host, seen, n, size)
	}
	_, err = server.WriteTo(buffer[:n], sender)
	fatal(t, err)
	n, err = client.Read(buffer)
	fatal(t, err)
	if !bytes.Equal(buffer[:n], body) {
		t.Errorf("answer of %s differs", address)
	}
}

func dialUDP(t *testing.T, from netns.NsHandle, address string) net.Conn {
	t.Helper()
	var client net.Conn
	inside(t, from, func() (err error) { client, err = net.Dial("udp4", address+":7000"); return err })
	return client
}

// refused sends to a closed port, and checks that the sender gets an error.
func refused(t *testing.T, from netns.NsHandle, address string) {
	t.Helper()
	client := dialUDP(t, from, address)
	defer client.Close()
	_, err := client.Write(binary.BigEndian.AppendUint32(nil, 1))
	fatal(t, err)
	_ = client.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err = client.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s: %v, want connection refused", address, err)
	}
}
