// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
	"liqo.io/liqo/internal/network/carrier/transport"
	"liqo.io/liqo/internal/peering/auth/ways"
)

const (
	// wayTimeout bounds the attempts at the provider's gateways, noteTime how long a refusal of UDP is waited for: each peering waits for it.
	wayTimeout = 3 * time.Second
	noteTime   = 30 * time.Millisecond
)

// tried is a way to the provider's gateway, and what came of it.
type tried struct {
	ways.Way
	err error
}

// tryWays tries all ways to the provider's gateway from this machine. Nothing is opened or changed.
func tryWays(ctx context.Context, all []ways.Way, probe func(context.Context, transport.Target) error) []tried {
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wayTimeout)
	defer cancel()
	datagrams, enough := context.WithCancel(ctx)
	defer enough()
	results := make([]tried, len(all))
	var streams, rest sync.WaitGroup
	for i, way := range all {
		target := transport.Target{Kind: transport.Kind(way.Kind), Host: way.Host, Port: uint16(way.Port), Path: way.Path, Refuse: refuseOwn}
		if way.Kind == netv1alpha1.CarrierPlainWebSocket {
			target.Kind, target.Plain = transport.WebSocket, true
		}
		within, group := ctx, &streams
		if target.Kind == transport.UDP {
			within, group = datagrams, &rest
		}
		group.Go(func() { results[i] = tried{way, probe(within, target)} })
	}
	noted := time.NewTimer(noteTime)
	defer noted.Stop()
	streams.Wait()
	select {
	case <-noted.C:
	case <-ctx.Done():
	}
	enough()
	rest.Wait()
	return results
}

// refuseOwn refuses addresses that are those of this machine, or of its link: a provider elsewhere does not have them.
func refuseOwn(address netip.Addr) error {
	if address.IsLoopback() || address.IsLinkLocalUnicast() || address.IsMulticast() || address.IsUnspecified() {
		return errors.New("the address is loopback, link-local or multicast; want that of a host")
	}
	return nil
}

// wayLines are what the user reads about the ways, one line for each kind of carrier.
func wayLines(all []tried) (lines []string) {
	for _, kind := range []struct{ name, value string }{
		{netv1alpha1.CarrierUDP, "gateway.service.type is ClusterIP there, or its address is not known yet: then its gateway dials this cluster's"},
		{netv1alpha1.CarrierTLS, "gateway.config.streamPort is not set there"},
		{netv1alpha1.CarrierWebSocket, "neither gateway.config.streamPort nor webSocketURL is set there"},
	} {
		var texts []string
		for _, one := range all {
			if one.Kind == kind.name || one.Kind == netv1alpha1.CarrierPlainWebSocket && kind.name == netv1alpha1.CarrierWebSocket {
				texts = append(texts, one.String())
			}
		}
		if len(texts) == 0 {
			texts = []string{"not offered by the other cluster (" + kind.value + ")"}
		}
		lines = append(lines, "Tunnel over "+kind.name+": "+strings.Join(texts, "; "))
	}
	return lines
}

// String is what came of one way.
func (t tried) String() string {
	at := net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))) + t.Path
	switch {
	case errors.Is(t.err, syscall.ECONNREFUSED) && t.Kind == netv1alpha1.CarrierUDP:
		return at + " is refused, as by a gateway without peers and by some firewalls; whether it works shows when both gateways know each other"
	case t.err != nil:
		const longest = 300
		return fmt.Sprintf("%s does not work from this machine (%.*s)", at, longest, t.err)
	case t.Kind == netv1alpha1.CarrierUDP:
		return at + " is not refused; whether it works shows when both gateways know each other"
	}
	return at + " works from this machine"
}
