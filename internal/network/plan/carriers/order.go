// SPDX-License-Identifier: Apache-2.0

package carriers

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	netv1alpha1 "liqo.io/liqo/apis/net/v1alpha1"
)

const (
	// maxStreams bounds the endpoints of streams of one peer that are dialled.
	maxStreams = 16
	// maxNamed bounds the addresses in a message.
	maxNamed = 3
)

// Endpoint is where a gateway may be reached.
type Endpoint struct {
	// Kind of the carrier: one of the constants Carrier of the API.
	Kind string
	// Host is an address or a name.
	Host string
	Port uint16
	// Path of a WebSocket, and whether it has no TLS.
	Path  string
	Plain bool
}

// Streams returns the endpoints of streams in the order in which they are dialled: the first one of each kind, then the second ones, because a host
// that does not answer must not keep a whole kind back. refuse returns why an address of a host must not be dialled; nil if it may.
func Streams(endpoints []Endpoint, refuse func(address netip.Addr, host string) error) []Endpoint {
	type ranked struct {
		Endpoint
		rank int
	}
	var all []ranked
	ranks := map[string]int{}
	for _, endpoint := range endpoints {
		if endpoint.Kind == netv1alpha1.CarrierUDP {
			continue
		}
		if address, err := netip.ParseAddr(endpoint.Host); err == nil && refuse(address.Unmap(), endpoint.Host) != nil {
			continue
		}
		all = append(all, ranked{endpoint, ranks[endpoint.Kind]})
		ranks[endpoint.Kind]++
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return a.rank - b.rank })
	var streams []Endpoint
	for _, one := range all[:min(len(all), maxStreams)] {
		streams = append(streams, one.Endpoint)
	}
	return streams
}

// WhyNot returns why a tunnel does not use a better carrier than kind; empty if there is none. It does not change from one attempt to the next,
// because it becomes part of a status. tls is why the last attempt over TLS failed.
func WhyNot(kind string, endpoints []Endpoint, tls string) string {
	if kind == "" || kind == netv1alpha1.CarrierUDP {
		return ""
	}
	var udp []string
	announced := map[string]bool{}
	for _, endpoint := range endpoints {
		announced[endpoint.Kind] = true
		if endpoint.Kind == netv1alpha1.CarrierUDP && len(udp) < maxNamed {
			udp = append(udp, net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))))
		}
	}
	why := "UDP: the peer announces no address that this cluster can dial"
	if len(udp) > 0 {
		why = fmt.Sprintf("UDP: %s did not answer; it is tried every %s", strings.Join(udp, ", "), TryEvery)
	}
	switch {
	case kind != netv1alpha1.CarrierWebSocket:
	case tls != "":
		why += "; TLS: " + tls
	case !announced[netv1alpha1.CarrierTLS]:
		why += "; TLS: the peer announces no address"
	}
	return why
}

// Stream is which end opened a stream, and when.
type Stream struct {
	Dialled bool
	Since   time.Time
}

// Replaces reports whether a new stream takes the place of an old one with the same peer. It does, as the old one may be dead already. Only where
// both ends have dialled within the time of a hello, both keep the stream that the end with the smaller key dialled: otherwise each could close the
// stream that the other keeps.
func Replaces(own, peer []byte, old, now Stream, within time.Duration) bool {
	if old.Dialled == now.Dialled || now.Since.Sub(old.Since) >= within {
		return true
	}
	return now.Dialled == (bytes.Compare(own, peer) < 0)
}
