// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"liqo.io/liqo/internal/network/hoststate"
)

// keepalive is well below the 30 s after which NAT on a node forgets a UDP flow.
const keepalive = 5 * time.Second

// wireGuard returns the tunnel to the gateways of this lane at all peers. The networks of a peer belong to its key in use. Its other key may
// already do handshakes, and takes over when the peer has changed its key.
func (g validSnapshot) wireGuard() *hoststate.WireGuard {
	tunnel := &hoststate.WireGuard{PublicKey: g.Self.PublicKey, ListenPort: g.Self.ListenPort}
	for _, peer := range g.Peers {
		for _, lane := range peer.Lanes {
			if lane.Number != g.Self.Lane {
				continue
			}
			networks := remote(peer)
			slices.SortFunc(networks, netip.Prefix.Compare)
			for i, key := range lane.Keys {
				end := hoststate.WireGuardPeer{PublicKey: key, Endpoint: lane.Endpoint, Dial: lane.Dial, Keepalive: keepalive}
				if i == 0 {
					end.AllowedIPs = networks
				}
				tunnel.Peers = append(tunnel.Peers, end)
			}
		}
	}
	slices.SortFunc(tunnel.Peers, func(a, b hoststate.WireGuardPeer) int { return cmp.Compare(a.PublicKey, b.PublicKey) })
	return tunnel
}
