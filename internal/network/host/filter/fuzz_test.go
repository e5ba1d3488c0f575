// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"liqo.io/liqo/internal/network/hoststate"
)

// packet is what the expressions of a rule read and write.
type packet struct {
	in, out            string
	protocol           byte
	header, transport  []byte // of an ICMP error, transport holds the packet that it reports
	ctState, ctStatus  uint32
	destination        []byte // after a mapping
	checksum           uint32 // offset of the one that the kernel adapts to a write
	dropped, accepting bool
}

func (p *packet) base(of expr.PayloadBase) []byte {
	if of == expr.PayloadBaseTransportHeader {
		return p.transport
	}
	return p.header
}

// run evaluates a rule as the kernel does, and reports whether all of it matched. excluded are the elements of its sets.
func (p *packet) run(t *testing.T, exprs []expr.Any, excluded []netip.Addr) bool {
	var value []byte
	for _, one := range exprs {
		switch e := one.(type) {
		case *expr.Meta:
			switch e.Key {
			case expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME:
				name := p.in
				if e.Key == expr.MetaKeyOIFNAME {
					name = p.out
				}
				value = append([]byte(name), make([]byte, 16-len(name))...)
			case expr.MetaKeyL4PROTO:
				value = []byte{p.protocol}
			}
		case *expr.Ct:
			word := p.ctState
			if e.Key == expr.CtKeySTATUS {
				word = p.ctStatus
			}
			value = binary.NativeEndian.AppendUint32(nil, word)
		case *expr.Payload:
			at := p.base(e.Base)
			if int(e.Offset+e.Len) > len(at) {
				return false
			}
			if e.OperationType == expr.PayloadWrite {
				copy(at[e.Offset:e.Offset+e.Len], value)
				p.checksum = e.CsumOffset
				if layer4 := e.CsumFlags != 0; e.CsumType != expr.CsumTypeInet || layer4 != (e.Base == expr.PayloadBaseNetworkHeader) {
					t.Fatalf("a write at %d adapts the checksum of the transport: %t", e.Offset, layer4)
				}
				continue
			}
			value = bytes.Clone(at[e.Offset : e.Offset+e.Len])
		case *expr.Bitwise:
			for i := range value {
				value[i] = value[i]&e.Mask[i] ^ e.Xor[i]
			}
		case *expr.Cmp:
			order := bytes.Compare(value, e.Data)
			if len(value) != len(e.Data) {
				t.Fatalf("%x is compared with %x", value, e.Data)
			}
			if is, known := map[expr.CmpOp]bool{
				expr.CmpOpEq: order == 0, expr.CmpOpNeq: order != 0, expr.CmpOpGte: order >= 0, expr.CmpOpLte: order <= 0,
			}[e.Op]; !is || !known {
				return false
			}
		case *expr.Lookup:
			if slices.Contains(excluded, netip.AddrFrom4([4]byte(value))) == e.Invert {
				return false
			}
		case *expr.Immediate:
			value = e.Data
		case *expr.NAT:
			p.destination = value
		case *expr.Verdict:
			p.dropped, p.accepting = e.Kind == expr.VerdictDrop, e.Kind == expr.VerdictAccept
			return true
		default:
			t.Fatalf("unexpected expression %T", one)
		}
	}
	return true
}

func address(at []byte) netip.Addr { return netip.AddrFrom4([4]byte(at)) }

// swapped returns the network bits of one address with the host bits of another.
func swapped(network netip.Prefix, old []byte) (changed []byte) {
	for i, b := range network.Addr().AsSlice() {
		mask := byte(0xff << (8 - min(max(network.Bits()-8*i, 0), 8)))
		changed = append(changed, b&mask|old[i]&^mask)
	}
	return changed
}

// swaps are the offsets of the address that a verb changes: in the header, or in the ICMP message.
var swaps = map[hoststate.Verb]int{hoststate.SwapSource: 12, hoststate.SwapDestination: 16, hoststate.SwapInnerSource: 20, hoststate.SwapInnerDestination: 24}

// modelMatches is the meaning of a rule, as plan documents it.
func modelMatches(r *hoststate.PacketRule, p *packet) bool {
	within := func(network netip.Prefix, at []byte) bool {
		return !network.IsValid() || network.Contains(address(at))
	}
	inner := r.Verb == hoststate.SwapInnerSource || r.Verb == hoststate.SwapInnerDestination
	number := protocols[r.Protocol]
	if inner {
		number = protocols["icmp"]
	}
	switch {
	case r.InNot != "" && r.InNot == p.in, r.OutNot != "" && r.OutNot == p.out:
		return false
	case r.In != "" && r.In != p.in, r.Out != "" && r.Out != p.out, !within(r.From, p.header[12:16]), !within(r.To, p.header[16:20]):
		return false
	case slices.Contains(r.FromNot, address(p.header[12:16])), slices.Contains(r.ToNot, address(p.header[16:20])), number != 0 &&
		number != p.protocol, r.Port != 0 && r.Port != binary.BigEndian.Uint16(p.transport[2:]):
		return false
	case r.New && (p.ctState&8 == 0 || p.ctStatus&32 != 0), r.Mapped && p.ctStatus&32 == 0:
		return false
	case inner && !slices.Contains([]byte{3, 4, 11, 12}, p.transport[0]), inner && !within(r.Inner, p.transport[swaps[r.Verb]:][:4]):
		return false
	}
	return true
}

// modelError reports whether a rule has no encoding.
func modelError(r *hoststate.PacketRule) bool {
	bad := func(network netip.Prefix) bool { return network.IsValid() && !network.Addr().Is4() }
	_, swap := swaps[r.Verb]
	inner := r.Verb == hoststate.SwapInnerSource || r.Verb == hoststate.SwapInnerDestination
	_, known := protocols[r.Protocol]
	return bad(r.From) || bad(r.To) || slices.ContainsFunc(slices.Concat(r.FromNot, r.ToNot), func(one netip.Addr) bool { return !one.Is4() }) ||
		!inner && (r.Protocol != "" && !known || r.Protocol == "" && r.Port != 0) ||
		inner && bad(r.Inner) || swap && !(r.Network.IsValid() && r.Network.Addr().Is4()) || r.Verb == hoststate.MapDestination && !r.Address.Is4() ||
		!swap && !slices.Contains([]hoststate.Verb{hoststate.Drop, hoststate.Accept, hoststate.MapDestination}, r.Verb)
}

// FuzzRule evaluates the expressions of rules on packets: a rule matches the packets that the plan describes and changes them as described, and a rule
// that cannot be expressed is an error.
func FuzzRule(f *testing.F) {
	header := append(bytes.Repeat([]byte{0}, 12), 10, 1, 0, 7, 10, 2, 0, 9)
	icmp := append([]byte{3, 0, 0, 0, 0, 0, 0, 0}, header...)
	tcp := append([]byte{0x80, 0, 0x16, 0xef}, make([]byte, 28)...)
	const none = ""
	f.Add("drop", "eth0", none, "10.1.0.0/16", "10.2.0.0/31", none, "udp", uint16(5871), byte(0), "", header, tcp, byte(17))
	f.Add("accept", none, "liqo", "10.1.0.7/32", none, "10.1.0.7,10.1.0.8", none, uint16(0), byte(1), "", header, tcp, byte(6))
	f.Add("accept", none, none, none, none, "10.1.0.8", none, uint16(0), byte(0), "", header, tcp, byte(6))
	f.Add("accept", none, none, none, none, "10.2.0.9", none, uint16(0), byte(16), "", header, tcp, byte(6))
	f.Add("drop", none, none, none, none, "10.2.0.8", none, uint16(0), byte(16), "", header, tcp, byte(6))
	f.Add("drop", none, none, none, none, none, none, uint16(0), byte(1|4), "", header, tcp, byte(6))
	f.Add("drop", none, none, none, none, none, none, uint16(0), byte(2|8), "", header, tcp, byte(6))
	f.Add("accept", "eth0", none, none, none, none, none, uint16(0), byte(32), "", header, tcp, byte(6))
	f.Add("accept", none, "liqo", none, none, none, none, uint16(0), byte(64), "", header, tcp, byte(6))
	f.Add("accept", none, "wan", none, none, none, none, uint16(0), byte(64), "", header, tcp, byte(6))
	f.Add("swap source", none, none, "10.1.0.0/16", none, none, none, uint16(0), byte(0), "10.77.128.0/17", header, tcp, byte(6))
	f.Add("swap destination", none, none, none, "10.2.0.0/16", none, none, uint16(0), byte(0), "0.0.0.0/0", header, tcp, byte(6))
	f.Add("swap inner source", none, none, none, "10.1.0.0/16", none, none, uint16(0), byte(0), "192.168.0.0/21", header, icmp, byte(1))
	f.Add("swap inner destination", none, none, none, "10.2.0.0/16", none, none, uint16(0), byte(0), "192.168.0.0/31", header, icmp, byte(1))
	for _, kind := range []byte{0, 4, 5, 8, 11, 12, 13} {
		f.Add("swap inner destination", none, none, none, none, none, none, uint16(0), byte(0), "192.168.0.0/31", header, append([]byte{kind}, icmp[1:]...), byte(1))
	}
	f.Add("swap inner destination", none, none, none, none, none, "pigeon", uint16(80), byte(0), "192.168.0.0/31", header, append([]byte{8}, icmp[1:]...), byte(1))
	f.Add("map destination", none, none, none, "10.2.0.9/32", none, "tcp", uint16(5871), byte(0), "10.9.9.0/24", header, tcp, byte(6))
	f.Add("map destination", none, none, none, none, none, none, uint16(0), byte(0), "fd00::/64", header, tcp, byte(6))
	f.Add("swap source", none, none, none, none, none, none, uint16(0), byte(0), none, header, tcp, byte(6))
	f.Add("drop", none, none, "fd00::/8", none, none, none, uint16(0), byte(0), none, header, tcp, byte(6))
	f.Add("drop", none, none, none, none, "fd00::1", none, uint16(0), byte(0), none, header, tcp, byte(6))
	f.Add("drop", none, none, none, none, none, none, uint16(80), byte(0), none, header, tcp, byte(6))
	f.Add("bless", none, none, none, none, none, none, uint16(0), byte(0), none, header, tcp, byte(6))
	f.Fuzz(func(t *testing.T, verb, in, out, from, to, fromNot, protocol string, port uint16, state byte, network string, header, transport []byte, number byte) {
		prefix := func(text string) netip.Prefix { // invalid: none
			parsed, _ := netip.ParsePrefix(text)
			return parsed
		}
		if len(in) > 15 || len(out) > 15 || len(header) < 20 || len(transport) < 28 {
			return // no name of a device, or no packet of interest
		}
		rule := hoststate.PacketRule{
			In: in, Out: out, From: prefix(from), To: prefix(to), Protocol: protocol, Port: port, New: state&1 != 0, Mapped: state&2 != 0,
			Verb: hoststate.Verb(verb), Network: prefix(network), Inner: prefix(to), Address: prefix(network).Addr(),
		}
		if state&32 != 0 {
			rule.In, rule.InNot = "", in
		}
		if state&64 != 0 {
			rule.Out, rule.OutNot = "", out
		}
		if swaps[rule.Verb] >= 20 {
			rule.To = netip.Prefix{}
		}
		for text := range bytes.SplitSeq([]byte(fromNot), []byte(",")) {
			if one, err := netip.ParseAddr(string(text)); err == nil {
				rule.FromNot = append(rule.FromNot, one)
			}
		}
		set := rule.FromNot
		if state&16 != 0 {
			rule.FromNot, rule.ToNot = nil, set
		}
		w := &RuleWriter{Conn: &nftables.Conn{}, Table: &nftables.Table{Name: hoststate.NFTable}}
		if err := w.Rule(rule); (err != nil) != modelError(&rule) {
			t.Fatalf("%+v: %v", rule, err)
		} else if err != nil {
			return
		}
		for _, name := range []string{"eth0", "liqo"} {
			p := &packet{
				in: name, out: "liqo", protocol: number, header: bytes.Clone(header), transport: bytes.Clone(transport),
				ctState: uint32(state) << 1 & 8, ctStatus: uint32(state) << 2 & 32,
			}
			want := modelMatches(&rule, p)
			if got := p.run(t, w.Exprs, set); got != want {
				t.Fatalf("%+v matches %+v: %t, want %t", rule, p, got, want)
			}
			if !want {
				continue
			}
			wantHeader, wantTransport := bytes.Clone(header), bytes.Clone(transport)
			checksum := uint32(0)
			if at, swap := swaps[rule.Verb]; swap && at < 20 {
				checksum = 10
				copy(wantHeader[at:], swapped(rule.Network, header[at:]))
			} else if swap {
				checksum = 8 + 10
				copy(wantTransport[at:], swapped(rule.Network, transport[at:]))
			}
			if p.checksum != checksum || !bytes.Equal(p.header, wantHeader) || !bytes.Equal(p.transport, wantTransport) {
				t.Errorf("%+v changes the packet to %x %x, want %x %x", rule, p.header, p.transport, wantHeader, wantTransport)
			}
			if _, swap := swaps[rule.Verb]; p.dropped != (rule.Verb == hoststate.Drop) || p.accepting != (swap || rule.Verb == hoststate.Accept) ||
				rule.Verb == hoststate.MapDestination && !bytes.Equal(p.destination, rule.Address.AsSlice()) {
				t.Errorf("%+v ends with %+v", rule, p)
			}
		}
	})
}

func TestRuleErrors(t *testing.T) {
	for what, rule := range map[string]hoststate.PacketRule{
		"IPv6 source":     {From: netip.MustParsePrefix("fd00::/64"), Verb: hoststate.Drop},
		"IPv6 set":        {FromNot: []netip.Addr{netip.MustParseAddr("fd00::1")}, Verb: hoststate.Drop},
		"lonely port":     {Port: 1, Verb: hoststate.Drop},
		"protocol":        {Protocol: "sctp", Verb: hoststate.Drop},
		"no network":      {Verb: hoststate.SwapSource},
		"IPv6 network":    {Verb: hoststate.SwapDestination, Network: netip.MustParsePrefix("fd00::/64")},
		"no address":      {Verb: hoststate.MapDestination},
		"no verb":         {},
		"no inner before": {Verb: hoststate.SwapInnerSource},
	} {
		w := &RuleWriter{Conn: new(nftables.Conn), Table: &nftables.Table{Name: hoststate.NFTable, Family: nftables.TableFamilyIPv4}}
		if err := w.Rule(rule); err == nil {
			t.Errorf("%s: is written as %v", what, w.Exprs)
		}
	}
}
