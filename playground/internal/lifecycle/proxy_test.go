// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"liqo.io/liqo/playground/internal/image"
	"liqo.io/liqo/playground/internal/proxy"
	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
)

// proxyLab is a network namespace with the address of a node, whose server is behind a proxy.
type proxyLab struct {
	t       *testing.T
	ns      netns.NsHandle
	cluster topology.Cluster
}

// in runs a function in the namespace, on a thread of its own.
func (l proxyLab) in(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(l.ns); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

func newProxyLab(t *testing.T) proxyLab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: it makes a network namespace and changes the root directory, for which it must be root")
	}
	made := make(chan error)
	l := proxyLab{t: t}
	go func() {
		runtime.LockOSThread()
		var err error
		l.ns, err = netns.New()
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.ns.Close() })
	all, err := topology.New(scenario.Scenario{Network: netip.MustParsePrefix("10.210.0.0/16"), Clusters: []scenario.Cluster{
		{Name: "milan", ServiceCIDR: netip.MustParsePrefix("10.90.0.0/16"), Nodes: []scenario.Node{{Role: scenario.RoleControlPlane}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.cluster = all.Clusters[0]
	l.cluster.Dir = t.TempDir()
	if err := l.in(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, address := range []netip.Addr{l.cluster.ControlPlane.Address, l.cluster.Extra("", 0).Address} {
			if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(32, 32)}}); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(lo)
	}); err != nil {
		t.Fatal(err)
	}
	l.serve()
	return l
}

// serve runs the node's server at port 31000: it answers with the path and the client that the proxy names, and echoes the lines
// of a WebSocket.
func (l proxyLab) serve() {
	l.t.Helper()
	var listener net.Listener
	if err := l.in(func() (err error) {
		listener, err = net.Listen("tcp4", l.cluster.ControlPlane.Address.String()+":31000")
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			_, _ = fmt.Fprintf(w, "%s for %s", r.URL.Path, r.Header.Get("X-Forwarded-For"))
			return
		}
		conn, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+accept+"\r\n\r\n")
		_, _ = io.Copy(conn, both)
	})}
	go func() { _ = server.Serve(listener) }()
	l.t.Cleanup(func() { _ = server.Close() })
}

// start runs a proxy's program in the namespace and returns its plan and its address.
func (l proxyLab) start(p proxy.Proxy) (proxy.Plan, string) {
	l.t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		l.t.Skip("SKIPPED: no cache directory for Debian packages: ", err)
	}
	p.Cluster, p.Number = "milan", 1
	plan, err := proxy.New(p, l.cluster)
	if err != nil {
		l.t.Fatal(err)
	}
	if err := prepareProxy(l.t.Context(), filepath.Join(cache, "liqo-playground", "debian"), plan, ProxyAuthority(p, l.cluster)); err != nil {
		if errors.Is(err, image.ErrApt) {
			l.t.Skip("SKIPPED: the program needs a Debian mirror: ", err)
		}
		l.t.Fatal(err)
	}
	argv := plan.Machine.Components[0].Argv
	cmd := exec.Command(argv[0], argv[1:]...)
	log, err := os.Create(filepath.Join(l.t.TempDir(), "log"))
	if err != nil {
		l.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := l.in(cmd.Start); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && l.t.Failed() {
			l.t.Logf("log of %s:\n%s", p.Kind, text)
		}
		_ = log.Close()
	})
	return plan, fmt.Sprintf("%s:%d", plan.Endpoint.Address, p.Listen)
}

// dial connects to an address, which may start to listen soon.
func (l proxyLab) dial(address string) (conn net.Conn) {
	l.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := l.in(func() (err error) { conn, err = net.DialTimeout("tcp4", address, time.Second); return err })
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			return conn
		}
		if time.Now().After(deadline) {
			l.t.Fatal(err)
		}
	}
}

// ask sends a request and returns the response; the rest of the connection is behind reader.
func ask(t *testing.T, conn net.Conn, request string) (status int, body string, reader *bufio.Reader) {
	t.Helper()
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reader = bufio.NewReader(conn)
	connect := strings.HasPrefix(request, http.MethodConnect)
	response, err := http.ReadResponse(reader, &http.Request{Method: map[bool]string{true: http.MethodConnect, false: http.MethodGet}[connect]})
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	if response.StatusCode == http.StatusSwitchingProtocols || connect {
		return response.StatusCode, "", reader
	}
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text), reader
}

// echoes writes a line and wants it back.
func echoes(t *testing.T, conn net.Conn, reader *bufio.Reader) {
	t.Helper()
	if _, err := io.WriteString(conn, "a line\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := reader.ReadString('\n'); err != nil || line != "a line\n" {
		t.Errorf("a WebSocket carries %q, %v", line, err)
	}
}

// upgrade asks for a WebSocket; accept is the answer to its key (RFC 6455), without which HAProxy refuses the answer.
const (
	accept  = "ICX+Yqv66kxgM0FcWaLWlFLwTAI="
	upgrade = "GET /liqo/tunnel HTTP/1.1\nHost: milan\nUpgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: " +
		"AAAAAAAAAAAAAAAAAAAAAA=="
)

// TestReverseProxy runs the real programs: one path and WebSockets pass, without and with TLS, and other paths are not found.
func TestReverseProxy(t *testing.T) {
	for _, p := range []proxy.Proxy{
		{Kind: proxy.Nginx, Listen: 80}, {Kind: proxy.HAProxy, Listen: 443, TLS: true},
	} {
		t.Run(string(p.Kind), func(t *testing.T) {
			l := newProxyLab(t)
			p.To, p.Path = 31000, "/liqo"
			plan, address := l.start(p)
			open := func() net.Conn {
				t.Helper()
				conn := l.dial(address)
				t.Cleanup(func() { _ = conn.Close() })
				if plan.Pair == "" {
					return conn
				}
				p.Cluster, p.Number = "milan", 1
				authority, err := os.ReadFile(ProxyAuthority(p, l.cluster))
				if err != nil {
					t.Fatal(err)
				}
				pool := x509.NewCertPool()
				pool.AppendCertsFromPEM(authority)
				secure := tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: plan.Endpoint.Address.String(), MinVersion: tls.VersionTLS12})
				if err := secure.HandshakeContext(context.Background()); err != nil {
					t.Fatal(err)
				}
				return secure
			}
			if status, body, _ := ask(t, open(), "GET /liqo/x HTTP/1.1\nHost: milan"); status != 200 || !strings.HasPrefix(body, "/liqo/x for 10.210.1.") {
				t.Errorf("got %d %q, want the answer of the node and an address of the client", status, body)
			}
			if status, _, _ := ask(t, open(), "GET /other HTTP/1.1\nHost: milan"); status != 404 {
				t.Errorf("got %d for another path, want 404", status)
			}
			conn := open()
			status, _, reader := ask(t, conn, upgrade)
			if status != http.StatusSwitchingProtocols {
				t.Fatalf("got %d for a WebSocket, want 101", status)
			}
			echoes(t, conn, reader)
		})
	}
}

// TestForwardProxy runs Tinyproxy: CONNECT needs the password.
func TestForwardProxy(t *testing.T) {
	l := newProxyLab(t)
	_, address := l.start(proxy.Proxy{Kind: proxy.Connect, Listen: 3128, User: "liqo", Password: "secret"})
	request := fmt.Sprintf("CONNECT %s:31000 HTTP/1.1\nHost: milan", l.cluster.ControlPlane.Address)
	for authorization, want := range map[string]int{
		"": 407, "\nProxy-Authorization: Basic bGlxbzp3cm9uZw==": 401, "\nProxy-Authorization: Basic bGlxbzpzZWNyZXQ=": 200,
	} {
		conn := l.dial(address)
		defer func() { _ = conn.Close() }()
		status, _, reader := ask(t, conn, request+authorization)
		if status != want {
			t.Errorf("with the header %q: got %d, want %d", authorization, status, want)
		}
		if status != 200 {
			continue
		}
		if _, err := io.WriteString(conn, strings.ReplaceAll(upgrade, "\n", "\r\n")+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if response, err := http.ReadResponse(reader, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("through the tunnel: %+v, %v", response, err)
		}
		echoes(t, conn, reader)
	}
}
