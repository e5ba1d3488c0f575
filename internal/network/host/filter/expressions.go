// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"liqo.io/liqo/internal/network/hoststate"
)

// Offsets in headers. An ICMP error has 8 bytes before the header of the packet that it reports.
const (
	headerChecksum    = 10
	sourceAddress     = 12
	destinationOffset = 16
	destinationPort   = 2
	innerHeader       = 8
	tcpFlags          = 13
)

// ipsDestinationNAT is IPS_DST_NAT of the kernel.
const ipsDestinationNAT = 1 << 5

// register holds the value that a rule compares; no rule needs two at once.
const register = unix.NFT_REG_1

// RuleWriter encodes one rule as expressions. The kernel leaves the rule at the first expression that does not match.
type RuleWriter struct {
	Conn  *nftables.Conn
	Table *nftables.Table
	Exprs []expr.Any
}

func (w *RuleWriter) add(all ...expr.Any) { w.Exprs = append(w.Exprs, all...) }

func (w *RuleWriter) Rule(r hoststate.PacketRule) error {
	w.link(expr.MetaKeyIIFNAME, expr.CmpOpEq, r.In)
	w.link(expr.MetaKeyOIFNAME, expr.CmpOpEq, r.Out)
	w.link(expr.MetaKeyIIFNAME, expr.CmpOpNeq, r.InNot)
	w.link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, r.OutNot)
	if err := w.protocol(r); err != nil { // early, because it excludes most packets
		return err
	}
	if err := w.network(expr.PayloadBaseNetworkHeader, sourceAddress, r.From); err != nil {
		return err
	}
	if err := w.network(expr.PayloadBaseNetworkHeader, destinationOffset, r.To); err != nil {
		return err
	}
	if err := w.outside(sourceAddress, r.FromNot); err != nil {
		return err
	}
	if err := w.outside(destinationOffset, r.ToNot); err != nil {
		return err
	}
	// The first rule that reads connection state turns on connection tracking in the namespace, so encode that only if needed.
	if r.New {
		w.bits(&expr.Ct{Register: register, Key: expr.CtKeySTATE}, expr.CtStateBitNEW, true)
		w.bits(&expr.Ct{Register: register, Key: expr.CtKeySTATUS}, ipsDestinationNAT, false)
	}
	if r.Mapped {
		w.bits(&expr.Ct{Register: register, Key: expr.CtKeySTATUS}, ipsDestinationNAT, true)
	}
	if r.Shown {
		mark := binaryutil.NativeEndian.PutUint32(hoststate.ShownMark)
		w.add(&expr.Meta{Key: expr.MetaKeyMARK, Register: register},
			&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: mark, Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: mark})
	}
	return w.verb(r)
}

// link compares the name of the link a packet comes in or goes out by.
func (w *RuleWriter) link(key expr.MetaKey, how expr.CmpOp, name string) {
	if name == "" {
		return
	}
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded[:unix.IFNAMSIZ-1], name)
	w.add(&expr.Meta{Key: key, Register: register}, &expr.Cmp{Op: how, Register: register, Data: padded})
}

// network matches an address of a header.
func (w *RuleWriter) network(base expr.PayloadBase, offset uint32, of netip.Prefix) error {
	if !of.IsValid() {
		return nil
	}
	if !of.Addr().Is4() {
		return fmt.Errorf("%s is not an IPv4 network", of)
	}
	if of.Bits() == 0 {
		return nil
	}
	w.add(&expr.Payload{DestRegister: register, Base: base, Offset: offset, Len: 4})
	if of.Bits() < 32 {
		w.add(&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: networkMask(of.Bits()), Xor: make([]byte, 4)})
	}
	w.add(&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: of.Masked().Addr().AsSlice()})
	return nil
}

func networkMask(bits int) []byte {
	return binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-bits))
}

// setSize is a number of elements that fits one message with a margin.
const setSize = 1000

// outside matches an address of the header outside of the addresses, split into as many sets as needed. Every address is outside of an empty set.
func (w *RuleWriter) outside(offset uint32, addresses []netip.Addr) error {
	if len(addresses) == 0 {
		return nil
	}
	w.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4})
	for some := range slices.Chunk(addresses, setSize) {
		set := &nftables.Set{Table: w.Table, Anonymous: true, Constant: true, KeyType: nftables.TypeIPAddr}
		elements := make([]nftables.SetElement, len(some))
		for i, one := range some {
			if !one.Is4() {
				return fmt.Errorf("%s is not an IPv4 address", one)
			}
			elements[i].Key = one.AsSlice()
		}
		if err := w.Conn.AddSet(set, elements); err != nil {
			return fmt.Errorf("make set: %w", err)
		}
		w.add(&expr.Lookup{SourceRegister: register, SetName: set.Name, SetID: set.ID, Invert: true})
	}
	return nil
}

var protocols = map[string]byte{"udp": unix.IPPROTO_UDP, "tcp": unix.IPPROTO_TCP, "icmp": unix.IPPROTO_ICMP}

func (w *RuleWriter) protocol(r hoststate.PacketRule) error {
	name := r.Protocol
	switch r.Verb {
	case hoststate.ClampMSS:
		name = "tcp"
	case hoststate.SwapInnerSource, hoststate.SwapInnerDestination:
		name = "icmp"
	}
	if name == "" {
		if r.Port != 0 {
			return fmt.Errorf("port %d without a protocol", r.Port)
		}
		return nil
	}
	number, ok := protocols[name]
	if !ok {
		return fmt.Errorf("unknown protocol %q", name)
	}
	w.add(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}, &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{number}})
	if r.Port != 0 {
		w.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binary.BigEndian.AppendUint16(nil, r.Port)})
	}
	return nil
}

// bits matches if one of the bits is set, or if none is.
func (w *RuleWriter) bits(load expr.Any, bits uint32, set bool) {
	op := expr.CmpOpEq
	if set {
		op = expr.CmpOpNeq
	}
	w.add(load,
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: register, Data: make([]byte, 4)})
}

func (w *RuleWriter) verb(r hoststate.PacketRule) error {
	switch r.Verb {
	case hoststate.Drop:
		w.add(&expr.Verdict{Kind: expr.VerdictDrop})
	case hoststate.Accept:
		w.add(&expr.Verdict{Kind: expr.VerdictAccept})
	case hoststate.NoTrack:
		w.add(&expr.Notrack{})
	case hoststate.KeepSource:
		w.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: sourceAddress, Len: 4},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: register})
	case hoststate.MapDestination:
		if !r.Address.Is4() {
			return fmt.Errorf("%s is not an IPv4 address", r.Address)
		}
		w.add(&expr.Immediate{Register: register, Data: r.Address.AsSlice()},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: register})
	case hoststate.MarkShown:
		w.add(&expr.Meta{Key: expr.MetaKeyMARK, Register: register},
			&expr.Bitwise{
				SourceRegister: register, DestRegister: register, Len: 4,
				Mask: binaryutil.NativeEndian.PutUint32(^uint32(hoststate.ShownMark)), Xor: binaryutil.NativeEndian.PutUint32(hoststate.ShownMark),
			},
			&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register})
	case hoststate.MapDestinationNetwork:
		return w.mapNetwork(destinationOffset, expr.NATTypeDestNAT, r.Network)
	case hoststate.MapSourceNetwork:
		return w.mapNetwork(sourceAddress, expr.NATTypeSourceNAT, r.Network)
	case hoststate.Masquerade:
		w.add(&expr.Masq{})
	case hoststate.ClampMSS:
		w.clamp(r.MSS)
	case hoststate.SwapSource:
		return w.swap(sourceAddress, r.Network)
	case hoststate.SwapDestination:
		return w.swap(destinationOffset, r.Network)
	case hoststate.SwapInnerSource:
		return w.swapInner(innerHeader+sourceAddress, r)
	case hoststate.SwapInnerDestination:
		return w.swapInner(innerHeader+destinationOffset, r)
	default:
		return fmt.Errorf("unknown verb %q", r.Verb)
	}
	return nil
}

// mapNetwork translates an address to the one of a network with the same host bits, for the whole connection. The address is computed from the packet, which
// kernels do that know no mapping of networks (before 5.8).
func (w *RuleWriter) mapNetwork(offset uint32, kind expr.NATType, network netip.Prefix) error {
	if !network.IsValid() || !network.Addr().Is4() {
		return fmt.Errorf("%s is not an IPv4 network", network)
	}
	w.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: hostMask(network.Bits()), Xor: network.Masked().Addr().AsSlice()},
		&expr.NAT{Type: kind, Family: unix.NFPROTO_IPV4, RegAddrMin: register})
	return nil
}

func hostMask(bits int) []byte {
	return binary.BigEndian.AppendUint32(nil, ^(^uint32(0) << (32 - bits)))
}

// clamp writes the MSS option of packets that open a connection. The kernel never raises the value.
func (w *RuleWriter) clamp(mss uint16) {
	const syn, rst = 0x02, 0x04
	const optionMSS, optionMSSValue = 2, 2
	w.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 1, Mask: []byte{syn | rst}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{syn}},
		&expr.Immediate{Register: register, Data: binary.BigEndian.AppendUint16(nil, mss)},
		&expr.Exthdr{SourceRegister: register, Type: optionMSS, Offset: optionMSSValue, Len: 2, Op: expr.ExthdrOpTcpopt})
}

// swap replaces the network bits of an address. The kernel adapts the checksum of the header, and those of UDP and TCP, which cover addresses.
func (w *RuleWriter) swap(offset uint32, network netip.Prefix) error {
	return w.write(network, expr.Payload{
		Base: expr.PayloadBaseNetworkHeader, Offset: offset, CsumOffset: headerChecksum, CsumFlags: unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR,
	})
}

// swapInner does the same inside an ICMP error, with the inner checksum. Both changes cancel out in the checksum of the ICMP message.
func (w *RuleWriter) swapInner(offset uint32, r hoststate.PacketRule) error {
	// Types 3, 11 and 12; the obsolete type 4 matches as well, and also carries a packet. Not a set: the kernel compares each new set with all
	// others, and each peer has several such rules.
	const bit, first, last = 8, 3, 4
	w.add(&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 1, Mask: []byte{^byte(bit)}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpGte, Register: register, Data: []byte{first}},
		&expr.Cmp{Op: expr.CmpOpLte, Register: register, Data: []byte{last}})
	if err := w.network(expr.PayloadBaseTransportHeader, offset, r.Inner); err != nil {
		return err
	}
	return w.write(r.Network, expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: offset, CsumOffset: innerHeader + headerChecksum})
}

// write ends the chain, because a later rule must not match the changed address.
func (w *RuleWriter) write(network netip.Prefix, to expr.Payload) error {
	if !network.IsValid() || !network.Addr().Is4() {
		return fmt.Errorf("%s is not an IPv4 network", network)
	}
	to.OperationType, to.SourceRegister, to.Len, to.CsumType = expr.PayloadWrite, register, 4, expr.CsumTypeInet
	w.add(&expr.Payload{DestRegister: register, Base: to.Base, Offset: to.Offset, Len: 4},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: hostMask(network.Bits()), Xor: network.Masked().Addr().AsSlice()},
		&to, &expr.Verdict{Kind: expr.VerdictAccept})
	return nil
}
