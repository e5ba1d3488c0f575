// SPDX-License-Identifier: Apache-2.0

package names

import (
	"encoding/binary"
	"errors"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// headerSize is the size of the header of a message, and plainSize the most bytes over UDP for clients that announce no size.
	headerSize, plainSize = 12, 512
	// ownSize is the size that answers of ours announce, which fits into any packet.
	ownSize = 1232
	// ownSeconds is how long an answer of ours counts: a namespace may be offloaded at any time.
	ownSeconds = 5
	// typeIXFR and typeAXFR transfer a zone.
	typeIXFR, typeAXFR = 251, 252
	// opQuery is the operation of questions.
	opQuery = 0
)

// errNoQuery: there is to be no answer.
var errNoQuery = errors.New("the packet is not a query")

// Query is a question of a client.
type Query struct {
	Packet   []byte
	Header   dnsmessage.Header
	Question dnsmessage.Question
	// EDNS is the client's record of EDNS(0), if it sent one.
	EDNS *dnsmessage.Resource
	// Refused is the code with which to answer a query that cannot be answered.
	Refused dnsmessage.RCode
}

// Parse reads a packet. It fails if there is to be no answer.
func Parse(packet []byte) (*Query, error) {
	var parser dnsmessage.Parser
	if len(packet) < headerSize {
		return nil, errNoQuery
	}
	header, err := parser.Start(packet)
	if err != nil || header.Response {
		return nil, errNoQuery
	}
	q := &Query{Packet: packet, Header: header, Refused: dnsmessage.RCodeFormatError}
	if header.OpCode != opQuery {
		q.Refused = dnsmessage.RCodeNotImplemented
		return q, nil
	}
	counts := [4]uint16{}
	for i := range counts {
		counts[i] = binary.BigEndian.Uint16(packet[4+2*i:])
	}
	if counts[0] != 1 || counts[1] != 0 || counts[2] != 0 || counts[3] > 2 {
		return q, nil
	}
	if q.Question, err = parser.Question(); err != nil {
		return q, nil
	}
	if q.Question.Type == typeIXFR || q.Question.Type == typeAXFR {
		q.Refused = dnsmessage.RCodeRefused
		return q, nil
	}
	if parser.SkipAllQuestions() != nil || parser.SkipAllAnswers() != nil || parser.SkipAllAuthorities() != nil {
		return q, nil
	}
	further, err := parser.AllAdditionals()
	if err != nil {
		return q, nil
	}
	for i := range further {
		if further[i].Header.Type == dnsmessage.TypeOPT {
			q.EDNS = &further[i]
		}
	}
	q.Refused = dnsmessage.RCodeSuccess
	return q, nil
}

// Size is the most bytes that the client accepts over UDP.
func (q *Query) Size() int {
	if q.EDNS == nil {
		return plainSize
	}
	return max(plainSize, int(q.EDNS.Header.Class))
}

// Name is the name that is asked for.
func (q *Query) Name() string { return canonical(q.Question.Name.String()) }

// Internet reports whether the question is of the class in which hosts are.
func (q *Query) Internet() bool { return q.Question.Class == dnsmessage.ClassINET }

// For returns a question of a type for another name, with what else the client has sent.
func (q *Query) For(name string, of dnsmessage.Type) ([]byte, error) {
	asked, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, err
	}
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{RecursionDesired: q.Header.RecursionDesired, CheckingDisabled: q.Header.CheckingDisabled},
		Questions: []dnsmessage.Question{{Name: asked, Type: of, Class: q.Question.Class}},
	}
	if q.EDNS != nil {
		message.Additionals = []dnsmessage.Resource{*q.EDNS}
	}
	return message.Pack()
}

// Error returns an answer with a code and without records.
func (q *Query) Error(code dnsmessage.RCode) []byte {
	r := reply{code: code}
	return r.pack(q, 0)
}

// Negative returns the answer that a name of the consumer's domain does not exist.
func (v *View) Negative(q *Query) []byte {
	r := reply{code: dnsmessage.RCodeNameError, authoritative: true, authorities: authority(v.theirs)}
	return r.pack(q, 0)
}

// authority returns the record of a domain that answers without records have: it states how long they count.
func authority(domain string) []dnsmessage.Resource {
	zone, err1 := dnsmessage.NewName(domain + ".")
	server, err2 := dnsmessage.NewName("ns.dns." + domain + ".")
	mail, err3 := dnsmessage.NewName("hostmaster." + domain + ".")
	if err1 != nil || err2 != nil || err3 != nil {
		return nil
	}
	return []dnsmessage.Resource{{
		Header: ownHeader(zone, dnsmessage.TypeSOA),
		Body:   &dnsmessage.SOAResource{NS: server, MBox: mail, Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, MinTTL: ownSeconds},
	}}
}

// Same reports whether a packet is the answer to a question: a late answer is to an earlier question, and an attacker may send one.
func Same(answer []byte, id uint16, name string, question dnsmessage.Question) bool {
	var parser dnsmessage.Parser
	header, err := parser.Start(answer)
	if err != nil || header.ID != id || !header.Response {
		return false
	}
	got, err := parser.Question()
	return err == nil && canonical(got.Name.String()) == canonical(name) && got.Type == question.Type && got.Class == question.Class
}

// SetID changes the ID of a message.
func SetID(packet []byte, id uint16) { binary.BigEndian.PutUint16(packet, id) }
