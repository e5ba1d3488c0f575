// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"liqo.io/liqo/internal/kube/kubetest"
)

// TestShareEnds: a peer with too many connections to a destination loses its own oldest one. If all peers have too many, the one with the most loses its
// oldest, and of peers with as many, the one whose connection is the oldest.
func TestShareEnds(t *testing.T) {
	for name, test := range map[string]struct {
		open string // a letter is a connection of a peer, oldest first
		want int
	}{
		"one":                             {"a", -1},
		"as many as may be":               {"aaabbb", -1},
		"too many of the newest":          {"abbbb", 1},
		"too many of all":                 {"bbaaabb", 0},
		"the one with the most":           {"baaaccd", 1},
		"each has one":                    {"abcdefg", 0},
		"a peer beside some that hold on": {"aabbccd", 0},
	} {
		s := newSharing(&Share{Each: 3, All: 6, Burst: 1, Pause: time.Hour})
		for _, peer := range test.open {
			s.open = append(s.open, &shared{peer: string(peer)})
		}
		if got := s.excess(); got != test.want {
			t.Errorf("%s: of %s, number %d ends, want %d", name, test.open, got, test.want)
		}
	}
}

// TestShare: a new connection of a peer is served in place of its oldest one, one peer's pace is not that of another, and what ends counts no more.
func TestShare(t *testing.T) {
	f := start(t, Limits{})
	served, err := New(Options{
		Upstreams: map[string]Upstream{Auth: {Address: f.auth.Listener.Addr().String(), Share: &Share{Each: 2, All: 3, Burst: 4, Pause: time.Hour}}},
		Key:       testKey, Log: testr.New(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kubetest.Start(t, "proxy", func(ctx context.Context) error { return served.Serve(ctx, listener) })
	open := func(peer string, want int) net.Conn {
		t.Helper()
		connection, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { connection.Close() })
		if got := ask(t, connection, asking(peer, Auth)); got != want {
			t.Fatalf("a connection of %s is answered with %d, want %d", peer, got, want)
		}
		return connection
	}
	first := open(rome, http.StatusOK)
	open(rome, http.StatusOK)
	third := open(rome, http.StatusOK)
	if !ends(t, first) {
		t.Error("the oldest connection of a peer with too many is still open")
	}
	last := open(rome, http.StatusOK)
	open(rome, http.StatusTooManyRequests)
	other := open(milan, http.StatusOK)
	open(milan, http.StatusOK) // more than all may have, and each has two: the oldest of all ends
	if !ends(t, third) {
		t.Error("the oldest connection of all is still open")
	}
	for name, connection := range map[string]net.Conn{"rome": last, "milan": other} {
		if !quiet(connection, 50*time.Millisecond) {
			t.Errorf("a connection of %s within its share has ended", name)
		}
		connection.Close()
	}
	count := func() int {
		s := served.shared[Auth]
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.open)
	}
	kubetest.Eventually(t, "one connection is counted", func() error {
		if n := count(); n != 1 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
}
