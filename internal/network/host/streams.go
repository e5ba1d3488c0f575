// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"liqo.io/liqo/internal/network/carrier"
	"liqo.io/liqo/internal/network/plan"
)

// relay joins streams with the WireGuard of the kernel.
type relay struct {
	*carrier.Relay
	port  int
	ctx   context.Context //nolint:containedctx // it ends the sockets
	close context.CancelFunc
}

// bind is the network of a userspace device: UDP, and streams if there are any.
func (h *Host) bind() conn.Bind {
	if h.options.Hub == nil {
		return conn.NewDefaultBind()
	}
	return carrier.NewBind(conn.NewDefaultBind(), h.options.Hub)
}

// relayStreams prepares the addresses of streams for a device of the kernel. One in this process has them without a relay.
func (h *Host) relayStreams(want *plan.WireGuard) error {
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
		ctx, cancel := context.WithCancel(context.Background())
		h.relay = &relay{made, want.ListenPort, ctx, cancel}
	}
	var errs []error
	for _, peer := range want.Peers {
		if key, err := wgtypes.ParseKey(peer.PublicKey); err == nil {
			errs = append(errs, h.relay.Open(h.relay.ctx, carrier.Key(key)))
		}
	}
	return errors.Join(errs...)
}

func (h *Host) closeRelay() {
	if h.relay != nil {
		h.relay.close()
		h.relay.Close()
		h.relay = nil
	}
}
