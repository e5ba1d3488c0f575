// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"liqo.io/liqo/playground/demo/command"
)

func udpSocket(t *testing.T) net.PacketConn {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return socket
}

func TestProbeAnswered(t *testing.T) {
	web := webServer(t, command.Environment{Pod: "web-1", Node: "n", Cluster: "rome"})
	echoes := udpSocket(t)
	go echoUDP(echoes)
	names := udpSocket(t)
	go serveNames(names, map[string][4]byte{"web.test.": {192, 0, 2, 7}})

	for _, test := range []struct {
		args   []string
		detail string
	}{
		{[]string{"tcp", web.Listener.Addr().String()}, "from 127.0.0.1:"},
		{[]string{"http", web.URL + "/api/info"}, "200 OK pod=web-1 node=n cluster=rome"},
		{[]string{"http", web.Listener.Addr().String()}, "200 OK"},
		{[]string{"http", web.URL + "/none", "--status", "404"}, "404 Not Found"},
		{[]string{"udp", echoes.LocalAddr().String()}, "from 127.0.0.1:"},
		{[]string{"dns", "web.test.", "--server", names.LocalAddr().String()}, "192.0.2.7"},
	} {
		args := append([]string{"probe", "--count", "3", "-o", "json", "--interval", "1ms"}, test.args...)
		code, out, complaints := execute(t, args...)
		r := parsed[probeReport](t, out)
		if code != exitOK || r.Summary.Sent != 3 || r.Summary.Answered != 3 || r.Summary.LossPercent != 0 || r.Kind != test.args[0] || r.Target != test.args[1] {
			t.Errorf("%q: exit %d %s %+v", test.args, code, complaints, r)
			continue
		}
		if s := r.Summary; !(0 < s.Min && s.Min <= s.Mean && s.Mean <= s.Max) {
			t.Errorf("%q: times %+v", test.args, s)
		}
		if !strings.Contains(r.Tries[0].Detail, test.detail) {
			t.Errorf("%q: detail %q, want %q", test.args, r.Tries[0].Detail, test.detail)
		}
	}
}

func TestProbeFailures(t *testing.T) {
	web := webServer(t, command.Environment{})
	silent, unrelated := udpSocket(t), udpSocket(t)
	go func() {
		buffer := make([]byte, maxUDP)
		for {
			_, from, err := unrelated.ReadFrom(buffer)
			if err != nil {
				return // closed at the end of the test
			}
			if _, err := unrelated.WriteTo([]byte("not what you sent"), from); err != nil {
				return
			}
		}
	}()
	names := udpSocket(t)
	go serveNames(names, nil)
	for _, test := range []struct {
		args  []string
		error string
	}{
		{[]string{"tcp", freePort(t)}, "refused"},
		{[]string{"http", web.URL + "/none"}, "404"},
		{[]string{"http", web.URL + "/api/info", "--status", "404"}, "200"},
		{[]string{"http", web.URL + "/api/slow?ms=60000"}, "deadline exceeded"},
		{[]string{"udp", silent.LocalAddr().String()}, "no answer"},
		{[]string{"udp", unrelated.LocalAddr().String()}, "no answer"},
		{[]string{"dns", "none.test.", "--server", names.LocalAddr().String()}, "no such host"},
	} {
		args := append([]string{"probe", "-o", "json", "--count", "2", "--interval", "1ms", "--timeout", "500ms"}, test.args...)
		code, out, complaints := execute(t, args...)
		r := parsed[probeReport](t, out)
		if code != exitFailed || r.Summary.Answered != 0 || r.Summary.LossPercent != 100 || !strings.Contains(complaints, "0 of 2") {
			t.Errorf("%q: exit %d %s %+v", test.args, code, complaints, r)
			continue
		}
		if !strings.Contains(r.Tries[1].Error, test.error) {
			t.Errorf("%q: error %q, want %q", test.args, r.Tries[1].Error, test.error)
		}
	}
}

func TestRequire(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	gone := "http://" + freePort(t)
	for _, test := range []struct {
		url, require string
		want         int
	}{
		{server.URL, "all", exitFailed},
		{server.URL, "any", exitOK},
		{server.URL, "none", exitFailed},
		{gone, "all", exitFailed},
		{gone, "any", exitFailed},
		{gone, "none", exitOK},
	} {
		code, out, _ := execute(t, "probe", "http", test.url, "--count", "2", "--interval", "1ms", "--require", test.require)
		if code != test.want {
			t.Errorf("require %s: exit %d, want %d:\n%s", test.require, code, test.want, out)
		}
	}
	if err := (probePlan{require: "none"}).judge(probeSummary{}); err == nil {
		t.Error("no try at all passed as proof that nothing answers")
	}
}

func TestProbeText(t *testing.T) {
	server := webServer(t, command.Environment{Pod: "p"})
	_, out, _ := execute(t, "probe", "tcp", server.Listener.Addr().String(), "--count", "2", "--interval", "1ms")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "1 tcp 127.0.0.1:") || !strings.Contains(lines[2], "2 sent, 2 answered, 0.0 % lost, min/avg/max") {
		t.Errorf("got:\n%s", out)
	}
}

// serveNames is a DNS server with A records; other names do not exist.
func serveNames(socket net.PacketConn, names map[string][4]byte) {
	buffer := make([]byte, 512)
	for {
		n, from, err := socket.ReadFrom(buffer)
		if err != nil {
			return // closed at the end of the test
		}
		question := buffer[12:n]
		var name strings.Builder
		at := 0
		for length := int(question[0]); length > 0; length = int(question[at]) {
			name.Write(question[at+1 : at+1+length])
			name.WriteByte('.')
			at += 1 + length
		}
		end := at + 5
		address, known := names[name.String()]
		kind := binary.BigEndian.Uint16(question[at+1:])

		var reply bytes.Buffer
		reply.Write(buffer[:2])
		flags, answers := []byte{0x85, 0x80}, byte(0)
		if !known {
			flags[1] |= 3 // no such name
		} else if kind == 1 {
			answers = 1
		}
		reply.Write(append(flags, 0, 1, 0, answers, 0, 0, 0, 0))
		reply.Write(question[:end])
		if answers == 1 {
			reply.Write([]byte{0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4})
			reply.Write(address[:])
		}
		if _, err := socket.WriteTo(reply.Bytes(), from); err != nil {
			return
		}
	}
}
