// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

const key = "0123456789"

// start runs a server on loopback, over a packet connection that may be bent.
func start(t *testing.T, name string, bend func(net.PacketConn) net.PacketConn) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if bend != nil {
		packets = bend(packets)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Server{Name: name, Key: key}.serve(ctx, listener, packets) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

func TestCheck(t *testing.T) {
	target := start(t, "web", nil)
	for _, protocol := range []string{TCP, UDP} {
		for _, count := range []int64{1, chunk, chunk + 1, 10 << 20} {
			answer := Check(t.Context(), protocol, target, count)
			if answer.Error != "" || answer.Server != "web" || answer.Source != "127.0.0.1" || answer.Took <= 0 {
				t.Errorf("%s, %d bytes: %+v", protocol, count, answer)
			}
		}
	}
}

// TestCheckByProxy: a server asks another one, for those who know the key.
func TestCheckByProxy(t *testing.T) {
	front, back := start(t, "front", nil), start(t, "back", nil)
	ask := func(key string, query url.Values) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+front+CheckPath+"?"+query.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(KeyHeader, key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	query := url.Values{"target": {back}, "protocol": {TCP}, "bytes": {"5000"}}
	code, text := ask(key, query)
	var answer Answer
	if err := json.Unmarshal([]byte(text), &answer); err != nil || code != http.StatusOK || answer.Server != "back" || answer.Error != "" {
		t.Errorf("%d %s %v", code, text, err)
	}
	if code, _ := ask("another", query); code != http.StatusForbidden {
		t.Errorf("without the key: %d", code)
	}
	for _, bytes := range []string{"", "-1", "x", fmt.Sprint(MaxBytes + 1)} {
		query.Set("bytes", bytes)
		if code, _ := ask(key, query); code != http.StatusBadRequest {
			t.Errorf("bytes=%s: %d", bytes, code)
		}
	}
}

// lossy loses every second datagram.
type lossy struct {
	net.PacketConn
	count atomic.Int64
}

func (l *lossy) WriteTo(datagram []byte, to net.Addr) (int, error) {
	if l.count.Add(1)%2 == 0 {
		return len(datagram), nil
	}
	return l.PacketConn.WriteTo(datagram, to)
}

// bent changes the last byte of each answer.
type bent struct{ net.PacketConn }

func (b bent) WriteTo(datagram []byte, to net.Addr) (int, error) {
	datagram[len(datagram)-1]++
	return b.PacketConn.WriteTo(datagram, to)
}

// moving reports another source address each time.
type moving struct {
	net.PacketConn
	count atomic.Int64
}

func (m *moving) WriteTo(datagram []byte, to net.Addr) (int, error) {
	reply := withText(append([]byte(nil), datagram[:idBytes]...), fmt.Sprintf("10.0.0.%d", m.count.Add(1)))
	_, rest, _ := cutText(datagram[idBytes:])
	return m.PacketConn.WriteTo(append(reply, rest...), to)
}

func TestDatagramsGetLost(t *testing.T) {
	answer := Check(t.Context(), UDP, start(t, "lossy", func(c net.PacketConn) net.PacketConn { return &lossy{PacketConn: c} }), 3*chunk)
	if answer.Error != "" || answer.Repeated == 0 {
		t.Errorf("%+v", answer)
	}
}

// TestFails: each kind of failure on the way is noticed and reported.
func TestFails(t *testing.T) {
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := unused.Close(); err != nil {
		t.Fatal(err)
	}
	answering := func(handler http.HandlerFunc) string {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	for name, test := range map[string]struct{ protocol, target, want string }{
		"refused":           {TCP, unused.Addr().String(), "refused"},
		"refused datagrams": {UDP, unused.Addr().String(), "no answer to 6 datagrams"},
		"bent datagrams":    {UDP, start(t, "bent", func(c net.PacketConn) net.PacketConn { return bent{c} }), "differs from the sent bytes"},
		"two sources":       {UDP, start(t, "moving", func(c net.PacketConn) net.PacketConn { return &moving{PacketConn: c} }), "saw the source 10.0.0."},
		"no protocol":       {"SCTP", unused.Addr().String(), `protocol "SCTP"`},
		"bent": {TCP, answering(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write([]byte{table[0], table[1] + 1})
		}), "byte 1 was changed"},
		"cut off": {TCP, answering(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write(table[:100])
		}), "100 bytes of 5000"},
		"another server": {TCP, answering(http.NotFound), "404"},
	} {
		if answer := Check(t.Context(), test.protocol, test.target, 5000); !strings.Contains(answer.Error, test.want) {
			t.Errorf("%s: %+v, want %q", name, answer, test.want)
		}
	}
	// The server refuses a request that was changed on the way.
	response, err := http.Post("http://"+start(t, "web", nil)+exchangePath, "", strings.NewReader("not the pattern"))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a bent request: %s", response.Status)
	}
}
