// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"liqo.io/liqo/internal/network/agent"
	"liqo.io/liqo/internal/network/host"
	"liqo.io/liqo/internal/network/plan"
	"liqo.io/liqo/internal/network/probe"
)

// TestNameMoves: a gateway that is known by its name only is dialled at its new address within ten seconds, also if DNS changes later than the
// address, and a name is not looked up while all is well.
func TestNameMoves(t *testing.T) {
	for name, late := range map[string]time.Duration{"DNS first": 0, "DNS 3 s later": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				moved := time.Now().Add(time.Minute)
				var asked atomic.Int32
				g := newBare()
				g.tunnel = map[string]host.TunnelPeer{}
				g.resolver = &resolver{changed: func() {}, lookup: func(context.Context, string) ([]netip.Addr, error) {
					asked.Add(1)
					if time.Now().Before(moved.Add(late)) {
						return []netip.Addr{hostA.Addr()}, nil
					}
					return []netip.Addr{hostB.Addr()}, nil
				}}
				known := &peer{tunnel: newTunnel()}
				l := laneInputs{elsewhere: func(string) bool { return false }, endpoints: []agent.Endpoint{{Kind: "UDP", Host: "gw.milan.example", Port: hostA.Port()}}}
				wanted := netip.AddrPortFrom(hostB.Addr(), hostA.Port())
				for {
					<-time.After(100 * time.Millisecond)
					synctest.Wait() // for the lookup
					now := time.Now()
					if now.Before(moved) { // it answers
						l.result = probe.Result{Status: probe.Status{Last: now, Timeout: time.Second}}
					}
					lane := &plan.PeerLane{Keys: []string{"k"}}
					g.observeLane(now, known, lane, l)
					if now.Before(moved) {
						if n := asked.Load(); n > 1 {
							t.Fatalf("looked up %d times while all is well", n)
						}
						continue
					}
					if lane.Endpoint == wanted {
						t.Logf("dialled after %v, looked up %d times", now.Sub(moved), asked.Load())
						return
					}
					if now.Sub(moved) > 10*time.Second {
						t.Fatalf("after %v it dials %s", now.Sub(moved), lane.Endpoint)
					}
				}
			})
		})
	}
}
