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
)

// Probe reports whether a gateway answers at a target, one that opens streams with its peers. It does not prove whose gateway that is. For UDP it can only report
// that nothing listens there, if that is known at once: WireGuard answers its peers only.
func Probe(ctx context.Context, to Target) error {
	if to.Kind == UDP {
		return probeUDP(ctx, to)
	}
	conn, raw, err := dial(ctx, to)
	if err != nil {
		return &failure{to, err}
	}
	defer raw.Close()
	_ = conn.SetDeadline(time.Now().Add(helloTime))
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	if _, err := io.ReadFull(conn, make([]byte, nonceSize)); err != nil {
		return &failure{to, fmt.Errorf("no gateway answers: %w", err)}
	}
	return nil
}

// probeUDP sends datagrams that are none of WireGuard until ctx ends, and returns an error if the host refuses them.
func probeUDP(ctx context.Context, to Target) error {
	dialer := net.Dialer{Control: to.control()}
	conn, err := dialer.DialContext(ctx, "udp", to.hostPort())
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it is not known at once
	}
	if err != nil {
		return &failure{to, err}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte{0}); err != nil {
		return &failure{to, err}
	}
	// The refusal of one datagram is the result of the next call.
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNREFUSED) {
		return &failure{to, err}
	}
	return nil
}
