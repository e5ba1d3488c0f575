// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"liqo.io/liqo/internal/network/carrier/transport"
)

// Probe reports whether a gateway answers at a target, one that opens streams with its peers. It does not prove whose gateway that is. For UDP it can
// only report that nothing listens there, if that is known at once: WireGuard answers its peers only.
func Probe(ctx context.Context, to transport.Target) error {
	if to.Kind == transport.UDP {
		return probeUDP(ctx, to)
	}
	conn, raw, err := transport.Dial(ctx, to)
	if err != nil {
		return &transport.Failure{Target: to, Cause: err}
	}
	defer raw.Close()
	_ = conn.SetDeadline(time.Now().Add(transport.HelloTime))
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	if _, err := io.ReadFull(conn, make([]byte, nonceSize)); err != nil {
		return &transport.Failure{Target: to, Cause: fmt.Errorf("no gateway answers: %w", err)}
	}
	return nil
}

// probeUDP sends datagrams that are none of WireGuard until ctx ends, and returns an error if the host refuses them.
func probeUDP(ctx context.Context, to transport.Target) error {
	dialer := net.Dialer{Control: to.Control()}
	conn, err := dialer.DialContext(ctx, "udp", to.HostPort())
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it is not known at once
	}
	if err != nil {
		return &transport.Failure{Target: to, Cause: err}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte{0}); err != nil {
		return &transport.Failure{Target: to, Cause: err}
	}
	// The refusal of one datagram is the result of the next call.
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNREFUSED) {
		return &transport.Failure{Target: to, Cause: err}
	}
	return nil
}
