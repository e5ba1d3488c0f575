// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/liqo/apis/labels"
	"liqo.io/liqo/internal/kube/listener"
	"liqo.io/liqo/internal/offloading/names"
)

// zone is what the DNS of a cluster knows: the records of each name. Questions for silent names are not answered.
type zone map[string][]dnsmessage.ResourceBody

const silent = "silent."

func a(text string) *dnsmessage.AResource {
	return &dnsmessage.AResource{A: netip.MustParseAddr(text).As4()}
}

func aaaa(text string) *dnsmessage.AAAAResource {
	return &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(text).As16()}
}

func name(text string) dnsmessage.Name { return dnsmessage.MustNewName(text) }

// milan is a provider of two consumers that have a namespace of the same name, which is also one of its own.
func milan() zone {
	long := make([]dnsmessage.ResourceBody, 0, 60)
	for i := range 60 {
		long = append(long, a(fmt.Sprintf("10.9.0.%d", i)))
	}
	return zone{
		"web.shop-rome.svc.cluster.local.":            {a("10.1.0.1"), aaaa("fd00:1::1")},
		"web-0.web.shop-rome.svc.cluster.local.":      {a("10.1.0.1"), aaaa("fd00:1::1")},
		"_http._tcp.web.shop-rome.svc.cluster.local.": {&dnsmessage.SRVResource{Port: 8080, Weight: 1, Target: name("web-0.web.shop-rome.svc.cluster.local.")}},
		"1.0.1.10.in-addr.arpa.":                      {&dnsmessage.PTRResource{PTR: name("web-0.web.shop-rome.svc.cluster.local.")}},
		"alias.shop-rome.svc.cluster.local.":          {&dnsmessage.CNAMEResource{CNAME: name("web.shop.svc.cluster.local.")}},
		"hidden.shop-rome.svc.cluster.local.":         {&dnsmessage.CNAMEResource{CNAME: name("web-0.web.shop.svc.cluster.local.")}},
		"away.shop-rome.svc.cluster.local.":           {&dnsmessage.CNAMEResource{CNAME: name("web.prod.svc.cluster.local.")}},
		"loop.shop-rome.svc.cluster.local.":           {&dnsmessage.CNAMEResource{CNAME: name("loop.shop.svc.cluster.local.")}},
		"large.shop-rome.svc.cluster.local.":          long,
		"web.shop-paris.svc.cluster.local.":           {a("10.2.0.1")},
		"web.shop.svc.cluster.local.":                 {a("192.0.2.66")}, // milan's own
		"web.prod.svc.cluster.local.":                 {a("192.0.2.67")},
		"liqo-dns.liqo.svc.cluster.local.":            {a("10.96.0.77")},
		"minio.storage.svc.cluster.local.":            {a("10.3.0.1")},
		"example.com.":                                {a("192.0.2.1")},
		"www.example.com.":                            {&dnsmessage.CNAMEResource{CNAME: name("example.com.")}, a("192.0.2.1")},
	}
}

// respond is what CoreDNS does: it knows its own zone, follows aliases, leaves out those that lead to a name in its zone which it does not know, and
// cuts answers that are too large.
func (z zone) respond(packet []byte, most int) []byte {
	var m dnsmessage.Message
	if m.Unpack(packet) != nil || len(m.Questions) != 1 || m.Questions[0].Name.String() == silent {
		return nil
	}
	m.Response, m.Authoritative, m.RecursionAvailable = true, true, true
	asked := m.Questions[0]
	records, found := z[strings.ToLower(asked.Name.String())]
	if !found {
		m.RCode = dnsmessage.RCodeNameError
	}
	header := dnsmessage.ResourceHeader{Name: asked.Name, Class: asked.Class, TTL: 5}
	for _, body := range records {
		record := dnsmessage.Resource{Header: header, Body: body}
		alias, ok := body.(*dnsmessage.CNAMEResource)
		known := !ok || asked.Type == dnsmessage.TypeCNAME || !strings.HasSuffix(alias.CNAME.String(), ".cluster.local.")
		if ok && !known {
			for _, next := range z[alias.CNAME.String()] {
				known = known || typeOf(next) == asked.Type
			}
		}
		if ok && known || typeOf(body) == asked.Type {
			m.Answers = append(m.Answers, record)
		}
		if ok {
			header.Name = alias.CNAME
			for _, next := range z[alias.CNAME.String()] {
				if typeOf(next) == asked.Type {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: next})
				}
			}
			break
		}
	}
	if asked.Type == dnsmessage.TypeSRV && len(m.Answers) > 0 {
		m.Additionals = append(m.Additionals, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: name("web-0.web.shop-rome.svc.cluster.local."), Class: dnsmessage.ClassINET},
			Body:   a("10.1.0.1"),
		})
	}
	packed, err := m.Pack()
	if err == nil && most > 0 && len(packed) > most {
		m.Answers, m.Truncated = nil, true
		packed, err = m.Pack()
	}
	if err != nil {
		return nil
	}
	return packed
}

func typeOf(body dnsmessage.ResourceBody) dnsmessage.Type {
	switch body.(type) {
	case *dnsmessage.AResource:
		return dnsmessage.TypeA
	case *dnsmessage.AAAAResource:
		return dnsmessage.TypeAAAA
	case *dnsmessage.SRVResource:
		return dnsmessage.TypeSRV
	case *dnsmessage.PTRResource:
		return dnsmessage.TypePTR
	}
	return dnsmessage.TypeCNAME
}

// sockets opens a port for both protocols.
func sockets(t testing.TB) (*net.UDPConn, net.Listener, netip.AddrPort) {
	t.Helper()
	for range 20 {
		connections, err := listener.Open(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		at := netip.MustParseAddrPort(connections.Addr().String())
		if datagrams, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err == nil {
			return datagrams, connections, at
		}
		connections.Close()
	}
	t.Fatal("no port is free for both protocols")
	return nil, nil, netip.AddrPort{}
}

// serveZone starts the DNS of a cluster.
func serveZone(t testing.TB, z zone) netip.AddrPort {
	t.Helper()
	datagrams, connections, at := sockets(t)
	t.Cleanup(func() { datagrams.Close(); connections.Close() })
	go func() {
		buffer := make([]byte, largest)
		for {
			n, from, err := datagrams.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if answer := z.respond(buffer[:n], 512); answer != nil {
				_, _ = datagrams.WriteToUDPAddrPort(answer, from)
			}
		}
	}()
	go func() {
		for {
			connection, err := connections.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				for {
					packet, err := readFrame(connection, largest)
					if err != nil || writeFrame(connection, z.respond(packet, 0)) != nil {
						return
					}
				}
			}()
		}
	}()
	return at
}

// pods are addresses of this host that stand for pods.
var (
	rome, paris, fresh, unknown = netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3"),
		netip.MustParseAddr("127.0.0.4"), netip.MustParseAddr("127.0.0.9")
	clients = types.NamespacedName{Namespace: "shop-rome", Name: "client"}
)

// peers are those of milan.
func peers(t testing.TB, only ...string) *Callers {
	t.Helper()
	var remote []metav1.Object
	for _, peer := range []string{"rome", "paris"} {
		if len(only) > 0 && !slices.Contains(only, peer) {
			continue
		}
		remote = append(remote, &metav1.ObjectMeta{
			Name: "shop-" + peer, Labels: map[string]string{labels.RemoteClusterID: peer},
			Annotations: map[string]string{labels.ManagedByNamespaceMap: "liqo-tenant/" + peer, labels.OriginalName: "shop"},
		})
	}
	callers := NewCallers()
	callers.Know(names.Know(names.Cluster{
		Domain: "cluster.local", Open: []string{"storage"}, Server: "liqo-dns.liqo",
	}, remote, func(string) string { return "cluster.local" }))
	callers.Set(clients, []netip.Addr{rome}, nil)
	callers.Set(types.NamespacedName{Namespace: "shop-paris", Name: "client"}, []netip.Addr{paris}, nil)
	return callers
}

// start starts a server.
func start(t testing.TB, callers *Callers, upstream netip.AddrPort, limits Limits) netip.AddrPort {
	t.Helper()
	server, err := New(Options{Callers: callers, Upstreams: []netip.AddrPort{upstream}, Limits: limits, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	datagrams, connections, at := sockets(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, datagrams, connections) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	return at
}

// resolver is that of Go, in a pod, over a protocol; if it is empty, TCP where an answer is too large for UDP.
func resolver(network string, from netip.Addr, to netip.AddrPort) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, wanted, _ string) (net.Conn, error) {
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: from.AsSlice()}}
		if wanted = cmp.Or(network, wanted); wanted == "tcp" {
			dialer.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
		}
		return dialer.DialContext(ctx, wanted, to.String())
	}}
}

// TestServe: pods of two peers ask for the same names, and each reaches its own Services; the rest of the world is as it was.
func TestServe(t *testing.T) {
	at := start(t, peers(t), serveZone(t, milan()), Limits{})
	for _, network := range []string{"", "tcp"} {
		look := func(from netip.Addr, host string) string {
			found, err := resolver(network, from, at).LookupHost(t.Context(), host)
			if missing := (*net.DNSError)(nil); errors.As(err, &missing) && missing.IsNotFound {
				return "not found"
			}
			if err != nil {
				return err.Error()
			}
			slices.Sort(found)
			return strings.Join(found, " ")
		}
		for _, c := range []struct {
			from       netip.Addr
			host, want string
		}{
			{rome, "web.shop.svc.cluster.local.", "10.1.0.1 fd00:1::1"},
			{rome, "WEB.shop.svc.Cluster.Local.", "10.1.0.1 fd00:1::1"},
			{rome, "web-0.web.shop.svc.cluster.local.", "10.1.0.1 fd00:1::1"},
			{rome, "web.shop-rome.svc.cluster.local.", "10.1.0.1 fd00:1::1"},
			{rome, "alias.shop.svc.cluster.local.", "10.1.0.1 fd00:1::1"},
			{rome, "hidden.shop.svc.cluster.local.", "10.1.0.1 fd00:1::1"},
			{rome, "away.shop.svc.cluster.local.", "not found"},
			{rome, "web.prod.svc.cluster.local.", "not found"},
			{rome, "web.shop-paris.svc.cluster.local.", "not found"},
			{rome, "minio.storage.svc.cluster.local.", "10.3.0.1"},
			{rome, "kube-dns.kube-system.svc.cluster.local.", "10.96.0.77"},
			{rome, "example.com.", "192.0.2.1"},
			{rome, "www.example.com.", "192.0.2.1"},
			{rome, "nothing.example.com.", "not found"},
			{rome, "example.com.shop.svc.cluster.local.", "not found"},
			{rome, "example.com.svc.cluster.local.", "not found"},
			{paris, "web.shop.svc.cluster.local.", "10.2.0.1"},
			{paris, "web-0.web.shop.svc.cluster.local.", "not found"},
		} {
			if got := look(c.from, c.host); got != c.want {
				t.Errorf("%s over %s for %s: %s, want %s", c.host, network, c.from, got, c.want)
			}
		}
		if got := look(rome, "loop.shop.svc.cluster.local."); !strings.Contains(got, "server misbehaving") {
			t.Errorf("an alias without end: %s", got)
		}
		if got := strings.Fields(look(rome, "large.shop.svc.cluster.local.")); len(got) != 60 {
			t.Errorf("a large answer over %s has %d addresses", network, len(got))
		}
		_, services, err := resolver(network, rome, at).LookupSRV(t.Context(), "http", "tcp", "web.shop.svc.cluster.local.")
		if err != nil || len(services) != 1 || services[0].Target != "web-0.web.shop.svc.cluster.local." || services[0].Port != 8080 {
			t.Errorf("SRV: %v, %v", services, err)
		}
		if hosts, err := resolver(network, rome, at).LookupAddr(t.Context(), "10.1.0.1"); err != nil ||
			gocmp.Diff([]string{"web-0.web.shop.svc.cluster.local."}, hosts) != "" {
			t.Errorf("PTR: %v, %v", hosts, err)
		}
		if hosts, err := resolver(network, paris, at).LookupAddr(t.Context(), "10.1.0.1"); err == nil {
			t.Errorf("PTR of another peer: %v", hosts)
		}
	}
}

// TestCallers: a question waits until its caller is known, unless all peers get the same answer; who is no pod of a peer is refused; an address that has
// another pod now has none of the earlier one's names.
func TestCallers(t *testing.T) {
	callers := peers(t)
	upstream := serveZone(t, milan())
	at := start(t, callers, upstream, Limits{})
	if got, err := resolver("udp", fresh, at).LookupHost(t.Context(), "example.com."); err != nil || got[0] != "192.0.2.1" {
		t.Errorf("a pod that is not known yet: %v, %v", got, err)
	}
	found := make(chan string, 1)
	asks := make(chan struct{})
	go func() {
		close(asks)
		got, err := resolver("udp", fresh, at).LookupHost(t.Context(), "web.shop.svc.cluster.local.")
		found <- fmt.Sprint(got, err)
	}()
	<-asks
	callers.Set(types.NamespacedName{Namespace: "shop-rome", Name: "fresh"}, []netip.Addr{fresh}, nil)
	if got := <-found; got != "[10.1.0.1 fd00:1::1] <nil>" {
		t.Errorf("a pod that became known: %s", got)
	}
	// The pod has ended, and paris' next one has its address; the event of the end is late.
	callers.Set(types.NamespacedName{Namespace: "shop-paris", Name: "next"}, []netip.Addr{fresh}, nil)
	callers.Set(types.NamespacedName{Namespace: "shop-rome", Name: "fresh"}, nil, nil)
	if got, err := resolver("udp", fresh, at).LookupHost(t.Context(), "web.shop.svc.cluster.local."); err != nil || got[0] != "10.2.0.1" {
		t.Errorf("the next pod of the address: %v, %v", got, err)
	}
	quick := start(t, callers, upstream, Limits{Hold: 1})
	if got := code(t, unknown, quick, "web.shop.svc.cluster.local."); got != "RCodeRefused" {
		t.Errorf("an address of no peer: %s", got)
	}
	alone := start(t, peers(t, "rome"), upstream, Limits{Hold: 1})
	if got, err := resolver("udp", unknown, alone).LookupHost(t.Context(), "web.shop.svc.cluster.local."); err != nil || got[0] != "10.1.0.1" {
		t.Errorf("any address, with one peer: %v, %v", got, err)
	}
	empty := start(t, NewCallers(), upstream, Limits{Hold: 1})
	if got := code(t, rome, empty, "example.com."); got != "RCodeRefused" {
		t.Errorf("without peers: %s", got)
	}
}

// TestDeadUpstream: without the DNS of the cluster, a client learns at once that it has to ask elsewhere or again.
func TestDeadUpstream(t *testing.T) {
	datagrams, connections, dead := sockets(t)
	datagrams.Close()
	connections.Close()
	at := start(t, peers(t), dead, Limits{})
	for _, host := range []string{"example.com.", "web.shop.svc.cluster.local.", "1.0.1.10.in-addr.arpa."} {
		if got := code(t, rome, at, host); got != "RCodeServerFailure" {
			t.Errorf("%s: %s", host, got)
		}
	}
	if got := code(t, rome, at, "web.prod.svc.cluster.local."); got != "RCodeNameError" {
		t.Errorf("a name that is not here: %s", got)
	}
}

// ask sends a question over UDP and returns the answer.
func ask(t testing.TB, from netip.Addr, to netip.AddrPort, packet []byte) []byte {
	t.Helper()
	connection, err := net.DialUDP("udp", &net.UDPAddr{IP: from.AsSlice()}, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write(packet); err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(t.Context(), func() { connection.Close() })
	defer stop()
	answer := make([]byte, largest)
	n, err := connection.Read(answer)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return answer[:n]
}

func query(t testing.TB, host string) []byte {
	t.Helper()
	packed, err := (&dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name(host), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func code(t testing.TB, from netip.Addr, to netip.AddrPort, host string) string {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(ask(t, from, to, query(t, host))); err != nil {
		t.Fatal(err)
	}
	return m.RCode.String()
}

// TestEnd: a server that is asked to end ends its connections and frees its port.
func TestEnd(t *testing.T) {
	server, err := New(Options{Callers: peers(t), Upstreams: []netip.AddrPort{serveZone(t, milan())}, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	datagrams, connections, at := sockets(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, datagrams, connections) }()
	idle, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if got := code(t, rome, at, "example.com."); got != "RCodeSuccess" {
		t.Error(got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("the server answers after its end")
	}
	again, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
