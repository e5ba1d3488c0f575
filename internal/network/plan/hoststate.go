// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"time"
)

// Names and numbers of what is made on a host. Users see some of them in `ip` and `nft`, so they are kept.
const (
	// VXLANLink is the overlay between nodes and gateways, on both.
	VXLANLink = "liqo.vxlan"
	// TunnelLink is the WireGuard device of a gateway.
	TunnelLink = "liqo.tunnel"
	// Table is the routing table, and the priority of our rules begins there, too.
	Table = 18952
	// FirstRule to LastRule are the priorities that are ours.
	FirstRule, LastRule = 18952, 18991
	// VNI of the overlay.
	VNI = 18952
	// DefaultVXLANPort of the overlay.
	DefaultVXLANPort = 4879
	// NFTable is our table in nftables, family ip.
	NFTable = "liqo"
	// RouteProtocol marks our routes.
	RouteProtocol = 98
	// ProbePort is where gateways echo, UDP.
	ProbePort = 12345
	// MainTable is the kernel's own routing table.
	MainTable = 254
)

// HostState is what a host should look like, and nothing of what else is on it. All lists are in the order in which a packet
// meets them, or sorted; equal inputs make equal values. The zero value is a host without anything of ours.
type HostState struct {
	Links      []Link
	Addresses  []Address
	Neighbours []Neighbour
	Routes     []Route
	// Keep are networks: routes of ours to anything inside of them stay although they are not planned. It is not known whether they are wanted.
	Keep  []netip.Prefix
	Rules []Rule
	// Chains are the table NFTable, which is replaced as a whole. Without chains there is no table.
	Chains []Chain
	// WireGuard configures TunnelLink; nil if there is none.
	WireGuard *WireGuard
}

// LinkKind is a kind of link.
type LinkKind string

// The kinds of links.
const (
	VXLAN         LinkKind = "vxlan"
	WireGuardLink LinkKind = "wireguard"
)

// MAC is a hardware address.
type MAC [6]byte

// Link is one link of ours, up.
type Link struct {
	Name string
	Kind LinkKind
	MTU  int
	// MAC, Local and Port of a VXLAN device: its hardware address, the address it sends from, its UDP port.
	MAC   MAC
	Local netip.Addr
	Port  uint16
}

// Address is an address of a link.
type Address struct {
	Link string
	// Prefix is the address with its length; ours are all single addresses (/32, /128).
	Prefix netip.Prefix
}

// Neighbour is a permanent neighbour entry and, with Destination, the forwarding entry of its hardware address.
type Neighbour struct {
	Link    string
	Address netip.Addr
	MAC     MAC
	// Destination is where frames for MAC are sent: the address of the other end of the VXLAN.
	Destination netip.Addr
}

// Route is a route of ours, known by RouteProtocol.
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

// Rule is a policy rule of ours, known by its priority. Several rules may share one.
type Rule struct {
	Priority int
	// To, InLink and Protocol select packets; invalid or empty: any.
	To       netip.Prefix
	InLink   string
	Protocol string // "icmp" or empty
	Table    int
}

// Hook is where a chain hangs.
type Hook string

// The hooks.
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

// Verb is what a packet rule does.
type Verb string

// The verbs. All but NoTrack and ClampMSS end the chain. The swaps do, too, and accept what they have changed: the name that a peer gives
// to one of our networks may be our own name of another, and nothing may be translated twice.
const (
	Drop   Verb = "drop"
	Accept Verb = "accept"
	// NoTrack keeps the packet out of connection tracking.
	NoTrack Verb = "notrack"
	// KeepSource translates the source to itself, in a nat chain: the flow is bound, and later chains leave it alone.
	KeepSource Verb = "keep source"
	// SwapSource and SwapDestination write the network Network over that of the address; the host bits stay.
	SwapSource      Verb = "swap source"
	SwapDestination Verb = "swap destination"
	// SwapInnerSource and SwapInnerDestination do the same to the packet inside an ICMP error, with its header checksum. From and To
	// select by the outer addresses, Inner by the inner address that is changed; the match on types 3, 11 and 12 is implied.
	SwapInnerSource      Verb = "swap inner source"
	SwapInnerDestination Verb = "swap inner destination"
	// ClampMSS writes MSS into TCP's option; the kernel never raises it.
	ClampMSS Verb = "clamp mss"
	// MapDestination is connection-tracked destination translation to Address.
	MapDestination Verb = "map destination"
	// Masquerade takes the address of the outgoing link as source.
	Masquerade Verb = "masquerade"
)

// PacketRule is one rule: all selectors that are set must match.
type PacketRule struct {
	// In and Out are names of links.
	In, Out string
	// From and To are the networks of the packet's addresses.
	From, To netip.Prefix
	// FromNot matches sources that are none of these. It is a set; an empty one that is not nil matches all.
	FromNot []netip.Addr
	// Inner is the network of the inner address that SwapInner verbs change.
	Inner netip.Prefix
	// Protocol is "udp", "tcp", "icmp" or empty; Port is the destination port of udp and tcp, 0 for any.
	Protocol string
	Port     uint16
	// New matches packets that begin a connection and were not translated by somebody else (ct state new, ct status not dnat).
	New bool
	// Mapped matches packets of connections whose destination we mapped (ct status dnat).
	Mapped bool

	Verb Verb
	// Network is what swaps write.
	Network netip.Prefix
	// Address is where MapDestination leads.
	Address netip.Addr
	// MSS is what ClampMSS writes.
	MSS uint16
}

// WireGuard is the configuration of TunnelLink.
type WireGuard struct {
	// PublicKey tells which private key it has.
	PublicKey  string
	ListenPort int
	// Peers, in the order of their keys.
	Peers []WireGuardPeer
}

// WireGuardPeer is one remote gateway.
type WireGuardPeer struct {
	PublicKey string
	// Endpoint is where it is dialled; invalid: it dials. It is set when it, or Dial, is another than the last one that was set:
	// in between the device follows its peer.
	Endpoint netip.AddrPort
	// Dial counts up when the peer is to be taken away and made anew, so that a handshake begins at once.
	Dial       int
	AllowedIPs []netip.Prefix
	Keepalive  time.Duration
}
