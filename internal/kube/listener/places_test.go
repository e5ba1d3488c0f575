// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// fake is a connection from an address that notes its end.
type fake struct {
	net.Conn
	from  string
	ended bool
}

func (f *fake) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.from), 1))
}

func (f *fake) Close() error {
	f.ended = true
	return nil
}

// TestPlaces: each step enters a connection from an address, or does something with the n-th one; what has ended is compared at the end.
func TestPlaces(t *testing.T) {
	const a, b, c, d = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"
	for _, row := range []struct {
		name   string
		limits Limits
		steps  string
		// ended are the numbers of the connections that have ended, counted from 0.
		ended string
	}{
		{"places for all", Limits{All: 3}, a + " " + b + " " + c, ""},
		{"the network with the most loses its oldest", Limits{All: 3}, a + " " + b + " " + b + " " + c, "1"},
		{"the newcomer's network has the most", Limits{All: 3}, a + " " + b + " " + b + " " + b, "1"},
		{"of equal networks, the oldest ends and not the newcomer", Limits{All: 3}, a + " " + b + " " + c + " " + d, "0"},
		{"one network has too many", Limits{All: 9, Each: 2}, a + " " + b + " " + a + " " + a, "0"},
		{"the same address, written otherwise", Limits{All: 9, Each: 1}, a + " ::ffff:" + a, "0"},
		{"a /64 is one network", Limits{All: 2}, "2001:db8::1 2001:db8:0:1::1 2001:db8::2", "0"},
		{"who has left takes nothing", Limits{All: 2}, a + " " + b + " leave:0 " + c, ""},
		{"leaving twice frees one place", Limits{All: 2}, a + " leave:0 leave:0 " + b + " " + c + " " + d, "1"},
		{"a kept one never ends for others", Limits{All: 1, Kept: 1}, a + " keep:0 " + b + " " + c + " " + d, "1 2"},
		{"no place is left among the kept", Limits{All: 1, Kept: 1}, a + " keep:0 " + b + " keep:1 " + c, "1"},
		{"one client keeps its share only", Limits{All: 2, Kept: 2, KeptEach: 1}, a + " keep:0 " + a + " keep:1 " + b + " " + c, "1"},
		{"a kept one that leaves frees its place", Limits{All: 1, Kept: 1}, a + " keep:0 leave:0 " + b + " keep:1 " + c, ""},
		{"no place for those who are gone", Limits{All: 1, Kept: 1}, a + " " + b + " keep:0 keep:1 " + c, "0"},
		{"what is preferred ends after the others of its network", Limits{All: 9, Each: 2}, a + " prefer:0 " + a + " " + a + " " + a, "1 2"},
		{"what is preferred ends if there is no other", Limits{All: 9, Each: 2}, a + " prefer:0 " + a + " prefer:1 " + a + " prefer:2 " + a, "0 1"},
		{"what is preferred ends before other networks", Limits{All: 3}, a + " prefer:0 " + a + " prefer:1 " + b + " " + c, "0"},
		{"who holds the most ends", Limits{All: 9, Held: 10}, a + " " + b + " hold:0 hold:0 hold:1", "0"},
		{"several of a network hold together", Limits{All: 9, Held: 15}, a + " " + a + " " + b + " hold:2 hold:0 hold:1 hold:2", "0"},
		{"what was held is free again", Limits{All: 9, Held: 10}, a + " " + b + " hold:0 hold:0 release:0 hold:1", ""},
		{"what the kept hold does not count", Limits{All: 9, Kept: 1, Held: 10}, a + " " + b + " keep:0 hold:0 hold:0 hold:0 hold:1", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			places := NewPlaces(row.limits)
			var all []*fake
			var entered []*Place
			for _, step := range strings.Fields(row.steps) {
				verb, rest, _ := strings.Cut(step, ":")
				var n int
				_, _ = fmt.Sscan(rest, &n)
				switch verb {
				case "leave":
					entered[n].Leave()
				case "keep":
					entered[n].Keep("who")
				case "prefer":
					entered[n].Prefer()
				case "hold":
					entered[n].hold(5)
				case "release":
					entered[n].release()
				default:
					all = append(all, &fake{from: step})
					entered = append(entered, places.Enter(all[len(all)-1]))
				}
			}
			var ended []string
			for i, one := range all {
				if one.ended {
					ended = append(ended, fmt.Sprint(i))
				}
			}
			if !slices.Equal(ended, strings.Fields(row.ended)) {
				t.Errorf("%v have ended, want %s", ended, row.ended)
			}
			for _, one := range entered {
				one.Leave()
			}
			if len(places.guests)+len(places.from)+len(places.kept)+places.busy+places.held != 0 {
				t.Errorf("after all have left: %+v", places)
			}
		})
	}
}
