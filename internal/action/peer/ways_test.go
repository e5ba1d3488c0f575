// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/liqo/internal/network/carrier/transport"
	"liqo.io/liqo/internal/peering/auth/ways"
)

// TestWays: each carrier has one line, a way that hangs keeps no other one back, and UDP is waited for as long as the others take.
func TestWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var targets []string
		probe := func(ctx context.Context, to transport.Target) error {
			switch {
			case to.Kind == transport.UDP && to.Port == 1:
				return &net.OpError{Op: "read", Err: syscall.ECONNREFUSED}
			case to.Kind == transport.UDP || to.Port == 2:
				<-ctx.Done()
				if to.Kind == transport.UDP {
					return nil
				}
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			targets = append(targets, to.String())
			return nil
		}
		const host = "203.0.113.7"
		lines := func(all ...ways.Way) (string, time.Duration) {
			start := time.Now()
			return strings.Join(wayLines(tryWays(t.Context(), all, probe)), "\n"), time.Since(start)
		}
		for name, test := range map[string]struct {
			ways []ways.Way
			took time.Duration
			want string
		}{
			"UDP only": {
				[]ways.Way{{Kind: "UDP", Host: host, Port: 5871}},
				noteTime,
				"Tunnel over UDP: 203.0.113.7:5871 is not refused; whether it works shows when both gateways know each other\n" +
					"Tunnel over TLS: not offered by the other cluster (gateway.config.streamPort is not set there)\n" +
					"Tunnel over WebSocket: not offered by the other cluster (neither gateway.config.streamPort nor webSocketURL is set there)",
			},
			"UDP refused, the others work": {
				[]ways.Way{{Kind: "UDP", Host: host, Port: 1}, {Kind: "TLS", Host: host, Port: 443}, {Kind: "PlainWebSocket", Host: host, Port: 80, Path: "/x/lane-0"}},
				noteTime,
				"Tunnel over UDP: 203.0.113.7:1 is refused, as by a gateway without peers and by some firewalls; whether it works shows when both " +
					"gateways know each other\n" +
					"Tunnel over TLS: 203.0.113.7:443 works from this machine\n" +
					"Tunnel over WebSocket: 203.0.113.7:80/x/lane-0 works from this machine",
			},
			"TLS hangs": {
				[]ways.Way{{Kind: "TLS", Host: host, Port: 2}, {Kind: "WebSocket", Host: host, Port: 443, Path: "/lane-0"}},
				wayTimeout,
				"Tunnel over UDP: not offered by the other cluster (gateway.service.type is ClusterIP there, or its address is not known yet: then its " +
					"gateway dials this cluster's)\n" +
					"Tunnel over TLS: 203.0.113.7:2 does not work from this machine (context deadline exceeded)\n" +
					"Tunnel over WebSocket: 203.0.113.7:443/lane-0 works from this machine",
			},
		} {
			if got, took := lines(test.ways...); got != test.want || took != test.took {
				t.Errorf("%s, after %v (want %v):\n%s\nwant:\n%s", name, took, test.took, got, test.want)
			}
		}
		if all := strings.Join(targets, " "); !strings.Contains(all, "ws://203.0.113.7:80/x/lane-0") || !strings.Contains(all, "tls://203.0.113.7:443") {
			t.Errorf("dialled %s", all)
		}
	})
	if got := tryWays(t.Context(), nil, nil); got != nil {
		t.Errorf("without ways: %v", got)
	}
	for _, address := range []string{"127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1"} {
		if refuseOwn(netip.MustParseAddr(address)) == nil {
			t.Errorf("%s is dialled", address)
		}
	}
	if err := refuseOwn(netip.MustParseAddr("10.0.0.1")); err != nil {
		t.Error(err)
	}
}
