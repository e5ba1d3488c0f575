// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"liqo.io/liqo/internal/kube/kubetest"
	"liqo.io/liqo/internal/offloading/serving"
	"liqo.io/liqo/internal/peering/auth"
	"liqo.io/liqo/internal/peering/auth/client"
	"liqo.io/liqo/internal/peering/auth/endpoint"
)

// TestAttackNH2: clients without credentials hold all connections of the service that they get, with a request now and then or without one, and open others
// in the place of those that end; or they ask for challenges as fast as they may. They have five addresses, or one, which is that of an honest cluster too.
// The honest cluster renews its identity ten times, each time with a new connection, and each time in time.
func TestAttackNH2(t *testing.T) {
	if raceDetector {
		t.Skip(
			"SKIPPED: seconds are what the finding is about, and the race detector slows each of a thousand handshakes; `make unit` plays it, and test/e2e on clusters",
		)
	}
	// usual is what a renewal may take. It takes some milliseconds.
	const connections, usual = 700, 5 * time.Second
	five := []string{"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.6"}
	for name, attack := range map[string]struct {
		from []string
		use  func(net.Conn)
	}{
		"five addresses hold connections":  {five, holdConnection},
		"one address holds connections":    {five[:1], holdConnection},
		"the client's own address does":    {[]string{"127.0.0.1"}, holdConnection},
		"the client's own address does it": {[]string{"127.0.0.1"}, wantChallenges},
	} {
		t.Run(name, func(t *testing.T) {
			at := serveHeld(t)
			dial := func() *client.Client {
				client, err := client.New("https://"+at, client.Options{InsecureSkipTLSVerify: true, Timeout: usual})
				if err != nil {
					t.Fatal(err)
				}
				return client
			}
			ours := newKey("key")
			kubetest.Eventually(t, "the cluster registers", func() error {
				_, err := dial().Register(t.Context(), registration("key"))
				return err
			})
			if _, err := dial().Renew(t.Context(), milan, consumer, ours); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			held := make(chan struct{}, connections)
			ended := make(chan struct{}, connections)
			for n := range connections {
				go func() {
					attackHeld(ctx, attack.from[n%len(attack.from)], at, attack.use, held)
					ended <- struct{}{}
				}()
			}
			for range connections { // the attackers' head start
				<-held
			}
			for n := range 10 {
				if err := renewInTime(t.Context(), dial, ours, usual); err != nil {
					t.Errorf("renewal %d: %v", n, err)
					break
				}
			}
			cancel()
			for range connections {
				<-ended
			}
		})
	}
}

// renewInTime renews an identity, and tries again for some time, as a controller does.
func renewInTime(ctx context.Context, dial func() *client.Client, ours ed25519.PrivateKey, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		client := dial()
		_, err := client.Renew(ctx, milan, consumer, ours)
		client.Close()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// serveHeld serves a provider as the role does, with a registry in memory.
func serveHeld(t *testing.T) (at string) {
	t.Helper()
	b := newEnv(t, func(o *Options) { o.Now = time.Now })
	pair, err := serving.SelfSigned(serving.Names{Common: "liqo-auth"}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", kubetest.OwnAddress())
	if err != nil {
		t.Fatal(err)
	}
	at = free.Addr().String()
	free.Close()
	kubetest.Start(t, "service", func(ctx context.Context) error {
		return endpoint.Serve(ctx, func() {}, endpoint.Service(at, b.Server, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil }, logged.log()))
	})
	return at
}

// attackHeld keeps one connection from an address, and replaces it when it ends.
func attackHeld(ctx context.Context, from, at string, use func(net.Conn), held chan<- struct{}) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	for first := true; ctx.Err() == nil; first = false {
		raw, err := dialer.DialContext(ctx, "tcp", at)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { raw.Close() })
			secure := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the attacker's choice
			err = secure.HandshakeContext(ctx)
			if first { // an honest client comes after the handshakes of all, since it has no processor of its own here
				held <- struct{}{}
			}
			if err == nil {
				use(secure)
			}
			stop()
			raw.Close()
		} else if first {
			held <- struct{}{}
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second): // the attacker has one processor for all
		}
	}
}

// holdConnection sends nothing, or a request in 14 seconds, which is as few as an idle connection of the service needed once.
func holdConnection(connection net.Conn) {
	answers := bufio.NewReader(connection)
	if rand.IntN(2) == 0 {
		_, _ = answers.ReadByte() // until the service ends it
		return
	}
	for {
		if _, err := io.WriteString(connection, "GET /ids HTTP/1.1\r\nHost: liqo-auth\r\n\r\n"); err != nil || discard(answers) != nil {
			return
		}
		_ = connection.SetReadDeadline(time.Now().Add(14 * time.Second))
		if _, err := answers.ReadByte(); err == nil || !strings.Contains(err.Error(), "timeout") {
			return
		}
	}
}

// wantChallenges asks for challenges until the service ends the connection.
func wantChallenges(connection net.Conn) {
	body := fmt.Sprintf(`{"clusterID":%q,"nonce":%q}`, consumer.ClusterID, strings.Repeat("A", 43)+"=")
	answers := bufio.NewReader(connection)
	for {
		_, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: liqo-auth\r\nContent-Length: %d\r\n\r\n%s", auth.PathChallenge, len(body), body)
		if err != nil || discard(answers) != nil {
			return
		}
	}
}

func discard(answers *bufio.Reader) error {
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
