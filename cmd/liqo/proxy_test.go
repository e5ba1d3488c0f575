// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"

	discoveryv1alpha1 "liqo.io/liqo/apis/discovery/v1alpha1"
	"liqo.io/liqo/internal/kube/kubetest"
	authclient "liqo.io/liqo/internal/peering/auth/client"
	"liqo.io/liqo/internal/peering/auth/endpoint"
	authserver "liqo.io/liqo/internal/peering/auth/server"
	"liqo.io/liqo/internal/peering/proxy"
)

func TestProxyOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--key-path=/key": "",
		"--key-path=/key --address=:9000 --api-server=10.80.0.1:443 --auth=liqo-auth.liqo.svc:443": "",
		"":                                       "--key-path",
		"--key-path=/key --api-server=10.80.0.1": "--api-server",
		"--key-path=/key --auth=:443":            "--auth",
		"--key-path=/key --address=8118":         "--address",
	} {
		var o proxyOptions
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Register(flags)
		if err := flags.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if err := o.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestProxyUpstreams: there are two destinations, and only an authentication service without TLS has its TLS ended here.
func TestProxyUpstreams(t *testing.T) {
	for _, tls := range []bool{true, false} {
		o := proxyOptions{apiServer: "10.80.0.1:443", auth: "liqo-auth.liqo.svc:443", authTLS: tls, namespace: "liqo"}
		got, err := o.upstreams()
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[proxy.APIServer].Address != o.apiServer || got[proxy.APIServer].TLS != nil ||
			got[proxy.Auth].Address != o.auth || (got[proxy.Auth].TLS == nil) != tls {
			t.Errorf("TLS of the authentication service %t: %+v", tls, got)
		}
	}
}

// TestAttackProxyShare: a peer of an in-band peering uses all that it can get of the authentication service, which sees the address of the proxy for every
// peer. First it keeps 200 connections open, and replaces those that end; then it sends requests as fast as it can. Another peer is answered each time.
func TestAttackProxyShare(t *testing.T) {
	const rome, milan = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	for name, attack := range map[string]struct {
		connections int
		use         func(context.Context, net.Conn)
	}{
		"connections": {200, func(_ context.Context, connection net.Conn) {
			_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
			_, _ = connection.Read(make([]byte, 1)) // until it is closed
		}},
		"requests": {4, func(ctx context.Context, connection net.Conn) {
			secured := tls.Client(connection, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the attacker's choice
			for ctx.Err() == nil {
				_ = secured.SetDeadline(time.Now().Add(10 * time.Second))
				if _, err := io.WriteString(secured, "GET /ids HTTP/1.1\r\nHost: liqo-auth\r\n\r\n"); err != nil {
					return
				}
				if n, err := secured.Read(make([]byte, 4096)); n == 0 || err != nil {
					return
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			key := bytes.Repeat([]byte("k"), 32)
			at := proxyBeforeAuth(t, key)
			pass, err := proxy.Pass(key, rome)
			if err != nil {
				t.Fatal(err)
			}
			ask := fmt.Sprintf(
				"CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\nProxy-Authorization: Basic %s\r\n\r\n", proxy.Auth,
				base64.StdEncoding.EncodeToString([]byte(rome+":"+pass)),
			)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range attack.connections {
				go func() {
					for ctx.Err() == nil {
						if connection, err := net.Dial("tcp", at); err == nil {
							_, _ = io.WriteString(connection, ask)
							if answer := make([]byte, 512); readAnswer(connection, answer) == http.StatusOK {
								attack.use(ctx, connection)
							}
							connection.Close()
						}
						time.Sleep(20 * time.Millisecond)
					}
				}()
			}
			through, err := proxy.URL(key, milan, "proxy.invalid")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second) // the attacker's head start
			for i := range 6 {
				honest, err := authclient.New(discoveryv1alpha1.AuthURLInside, authclient.Options{
					InsecureSkipTLSVerify: true, ProxyURL: through, Timeout: 5 * time.Second,
					Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
						return (&net.Dialer{}).DialContext(ctx, network, at)
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := honest.IDs(t.Context()); err != nil {
					t.Errorf("request %d of the other peer: %v", i, err)
				}
				honest.Close()
				time.Sleep(300 * time.Millisecond)
			}
		})
	}
}

// proxyBeforeAuth starts an authentication service with its limits, and a proxy to it as the role starts one. It returns the address of the proxy.
func proxyBeforeAuth(t *testing.T, key []byte) string {
	t.Helper()
	handler, err := authserver.New(authserver.Options{
		Cluster: discoveryv1alpha1.ClusterIdentity{ClusterID: "33333333-3333-4333-8333-333333333333", ClusterName: "turin"}, Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := selfSignedAuth("liqo", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	service := endpoint.Service(address, handler, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }, logr.Discard())
	kubetest.Start(t, "authentication service", func(ctx context.Context) error { return endpoint.Serve(ctx, func() {}, service) })
	kubetest.Eventually(t, "the authentication service listens", func() error {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			err = connection.Close()
		}
		return err
	})
	o := proxyOptions{apiServer: "127.0.0.1:1", auth: address, authTLS: true}
	upstreams, err := o.upstreams()
	if err != nil {
		t.Fatal(err)
	}
	served, err := proxy.New(proxy.Options{Upstreams: upstreams, Key: key, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Start(t, "proxy", func(ctx context.Context) error { return served.Serve(ctx, listener) })
	return listener.Addr().String()
}

// readAnswer returns the code of the proxy's answer; 0 if there is none.
func readAnswer(connection net.Conn, into []byte) (code int) {
	_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, _ := connection.Read(into) // without an answer there is no code
	_, _ = fmt.Sscanf(string(into[:n]), "HTTP/1.1 %d ", &code)
	return code
}
