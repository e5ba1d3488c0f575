// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"net/netip"
	"time"
)

// Names and numbers of our kernel objects. Users see some of them in `ip` and `nft`, so they must not change.
const (
	// VXLANLink is the overlay between nodes and gateways, on both.
	VXLANLink = "liqo.vxlan"
	// TunnelLink is the WireGuard device of a gateway.
	TunnelLink = "liqo.tunnel"
	// Table is our routing table.
	Table = 18952
	// FirstRule to LastRule are the priorities of our rules.
	FirstRule, LastRule = 18952, 18991
	// VNI of the overlay.
	VNI = 18952
	// DefaultVXLANPort of the overlay.
	DefaultVXLANPort = 4879
	// NFTable is our table in nftables, family ip.
	NFTable = "liqo"
	// RouteProtocol marks our routes.
	RouteProtocol = 98
	// ProbePort is the UDP port at which gateways echo probes.
	ProbePort = 12345
	// MainTable is the kernel's own routing table.
	MainTable = 254
	// ShownMark are bits of a packet's mark that lead a first packet from one nat chain to the other. They are four, because other programs also mark
	// packets, with one bit mostly.
	ShownMark = 0x6c
)

// State is the desired state of our objects on a host. All lists are in the order in which a packet meets them, or sorted; equal
// snapshots give equal states. The zero value is a host without any object of ours.
type State struct {
	Links      []Link
	Addresses  []Address
	Neighbours []Neighbour
	Routes     []Route
	// Keep are networks: existing routes of ours to destinations inside them stay although they are not planned, because it is not known
	// yet whether they are wanted.
	Keep  []netip.Prefix
	Rules []Rule
	// Chains are the content of the table NFTable, which is replaced as a whole. Without chains there is no table.
	Chains []Chain
	// WireGuard configures TunnelLink; nil if there is none.
	WireGuard *WireGuard
}

// Closed returns the state of a host whose packets are not filtered: it has no overlay and no tunnel, and drops packets for peers. Without the
// filter, a peer would reach what the host reaches: its services, other peers, and whatever its uplink leads to.
func (s State) Closed() State {
	closed := State{Rules: s.Rules, Chains: s.Chains, Keep: s.Keep}
	for _, route := range s.Routes {
		if route.Blackhole {
			closed.Routes = append(closed.Routes, route)
		}
	}
	return closed
}

type LinkKind string

const (
	VXLAN         LinkKind = "vxlan"
	WireGuardLink LinkKind = "wireguard"
)

type MAC [6]byte

// Link is a link of ours; it must be up.
type Link struct {
	Name string
	Kind LinkKind
	MTU  int
	// MAC, Local and Port of a VXLAN device: its hardware address, the address it sends from, its UDP port.
	MAC   MAC
	Local netip.Addr
	Port  uint16
}

type Address struct {
	Link string
	// Prefix is the address with its length; ours are all single addresses (/32, /128).
	Prefix netip.Prefix
}

// Neighbour is a permanent neighbour entry and, if Destination is set, the forwarding entry of its hardware address.
type Neighbour struct {
	Link    string
	Address netip.Addr
	MAC     MAC
	// Destination is where frames for MAC are sent: the address of the other end of the VXLAN.
	Destination netip.Addr
}

// Route is a route of ours, recognized by RouteProtocol.
type Route struct {
	Table int
	To    netip.Prefix
	// Blackhole drops silently; then the other fields but Metric are empty.
	Blackhole bool
	// Via is the next hop, always on the link (onlink); invalid: To is on the link itself.
	Via  netip.Addr
	Link string
	// Source is the preferred source address; invalid: the kernel chooses.
	Source netip.Addr
	// MTU of the route; 0: that of the link.
	MTU    int
	Metric int
}

// Rule is a policy rule of ours, recognized by its priority. Several rules may share a priority.
type Rule struct {
	Priority int
	// To, InLink and Protocol select packets; invalid or empty: any.
	To       netip.Prefix
	InLink   string
	Protocol string // "icmp" or empty
	Table    int
}

type Hook string

const (
	Prerouting  Hook = "prerouting"
	Input       Hook = "input"
	Forward     Hook = "forward"
	Output      Hook = "output"
	Postrouting Hook = "postrouting"
)

// Chain is one base chain of our nftables table; its policy is accept.
type Chain struct {
	Name string
	// NAT chains are of type nat, the others of type filter.
	NAT      bool
	Hook     Hook
	Priority int
	Rules    []PacketRule
}

type Verb string

// The verbs. All but NoTrack and ClampMSS end the chain. The swaps also accept the packet: the prefix under which a peer reaches one of our
// networks may equal another of our own networks, and no address may be translated twice.
const (
	Drop   Verb = "drop"
	Accept Verb = "accept"
	// NoTrack keeps the packet out of connection tracking.
	NoTrack Verb = "notrack"
	// KeepSource translates the source to itself, in a nat chain. That binds the flow, so later chains do not masquerade it.
	KeepSource Verb = "keep source"
	// SwapSource and SwapDestination replace the network bits of the address by those of Network; the host bits stay.
	SwapSource      Verb = "swap source"
	SwapDestination Verb = "swap destination"
	// SwapInnerSource and SwapInnerDestination do the same in the packet inside an ICMP error, and adapt its header checksum. From and To
	// select by the outer addresses, Inner by the inner address to change; the match on types 3, 11 and 12 is implied.
	SwapInnerSource      Verb = "swap inner source"
	SwapInnerDestination Verb = "swap inner destination"
	// ClampMSS writes MSS into the TCP option; the kernel never raises it.
	ClampMSS Verb = "clamp mss"
	// MapDestination is connection-tracked destination translation to Address.
	MapDestination Verb = "map destination"
	// MapDestinationNetwork and MapSourceNetwork are the same for a network: they replace the network bits of the address by those of Network, for the
	// whole connection.
	MapDestinationNetwork Verb = "map destination network"
	MapSourceNetwork      Verb = "map source network"
	// MarkShown sets the bits of ShownMark in the first packet of a connection, and goes on. It is for nat chains.
	MarkShown Verb = "mark shown"
	// Masquerade uses the address of the outgoing link as source.
	Masquerade Verb = "masquerade"
)

// PacketRule is one rule: all selectors that are set must match.
type PacketRule struct {
	// In and Out are names of links; InNot and OutNot match all other links.
	In, Out, InNot, OutNot string
	// From and To are the networks of the packet's addresses.
	From, To netip.Prefix
	// FromNot matches sources outside of this set. An empty set that is not nil matches all.
	FromNot []netip.Addr
	// ToNot matches destinations outside of this set, as FromNot.
	ToNot []netip.Addr
	// Inner is the network of the inner address that SwapInner verbs change.
	Inner netip.Prefix
	// Protocol is "udp", "tcp", "icmp" or empty; Port is the destination port of udp and tcp, 0 for any.
	Protocol string
	Port     uint16
	// New matches the first packets of connections that no other program translated (ct state new, ct status not dnat).
	New bool
	// Mapped matches packets of connections whose destination we mapped (ct status dnat).
	Mapped bool
	// Shown matches packets with all bits of ShownMark.
	Shown bool

	Verb Verb
	// Network is the new network of a swap.
	Network netip.Prefix
	// Address is the new destination of MapDestination.
	Address netip.Addr
	// MSS is the bound of ClampMSS.
	MSS uint16
}

// WireGuard is the configuration of TunnelLink.
type WireGuard struct {
	// PublicKey identifies the private key of the device.
	PublicKey  string
	ListenPort int
	// Peers, in the order of their keys.
	Peers []WireGuardPeer
}

type WireGuardPeer struct {
	PublicKey string
	// Endpoint is where the peer is dialled; invalid: the peer dials. The applier sets it only when Endpoint or Dial changes: in
	// between the device follows its peer.
	Endpoint netip.AddrPort
	// Dial is incremented to remove and recreate the peer, so that a handshake starts at once.
	Dial       int
	AllowedIPs []netip.Prefix
	Keepalive  time.Duration
}
