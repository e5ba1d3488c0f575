// SPDX-License-Identifier: Apache-2.0

package host

import (
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/hoststate"
)

// relay joins streams with the WireGuard of the kernel.
type relay struct {
	*carrier.Relay
	port int
}

// bind is the network of a userspace device: UDP, and streams if there are any.
func (h *Host) bind() conn.Bind {
	if h.options.Hub == nil {
		return conn.NewDefaultBind()
	}
	return carrier.NewBind(conn.NewDefaultBind(), h.options.Hub)
}

// relayStreams prepares the addresses of streams for a device of the kernel. One in this process has them without a relay.
func (h *Host) relayStreams(want *hoststate.WireGuard) error {
	if h.options.Hub == nil || h.device != nil {
		return nil
	}
	if h.relay != nil && h.relay.port != want.ListenPort {
		h.closeRelay()
	}
	if h.relay == nil {
		made, err := carrier.NewRelay(h.options.Hub, uint16(want.ListenPort))
		if err != nil {
			return err
		}
		h.relay = &relay{made, want.ListenPort}
	}
	var peers []carrier.Key
	for _, peer := range want.Peers {
		if key, err := wgtypes.ParseKey(peer.PublicKey); err == nil {
			peers = append(peers, carrier.Key(key))
		}
	}
	return h.relay.Keep(peers)
}

func (h *Host) closeRelay() {
	if h.relay != nil {
		h.relay.Close()
		h.relay = nil
	}
}
