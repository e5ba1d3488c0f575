// SPDX-License-Identifier: Apache-2.0

package names

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/net/dns/dnsmessage"
)

// maxLinks bounds the aliases that lead from one name to another, in one answer and over several.
const maxLinks = 8

// reply is an answer in the making.
type reply struct {
	code                              dnsmessage.RCode
	authoritative, recursion, cut     bool
	answers, authorities, additionals []dnsmessage.Resource
	edns                              *dnsmessage.Resource
}

// Chain collects the answers of this cluster to one question of a pod. Aliases of Services (ExternalName) are names of the consumer, so that the next name
// may have to be translated and asked for in turn.
type Chain struct {
	view  *View
	query *Query
	reply reply
	// owner is the name that the client sees for what is asked for now.
	owner dnsmessage.Name
	links int
	// empty: the name exists, and the last answer has no record of it.
	empty bool
}

// NewChain starts with the question of the client.
func (v *View) NewChain(q *Query) *Chain { return &Chain{view: v, query: q, owner: q.Question.Name} }

var errLoop = errors.New("the aliases of the name lead too far")

// Add takes the answer of this cluster to a question for the name asked. It returns the consumer's name that is to be asked for next; empty if the answer is
// complete.
func (c *Chain) Add(asked string, answer []byte) (next string, _ error) {
	var message dnsmessage.Message
	if err := message.Unpack(answer); err != nil {
		return "", fmt.Errorf("answer to %s: %w", asked, err)
	}
	r := &c.reply
	r.code, r.recursion, r.cut = message.RCode, message.RecursionAvailable, message.Truncated
	r.authoritative = message.Authoritative && (r.authoritative || c.links == 0)
	r.authorities, r.additionals, r.edns = nil, nil, nil
	final, next, err := c.follow(canonical(asked), message.Answers)
	if err != nil {
		return "", err
	}
	if next != "" {
		return next, nil
	}
	before := len(r.answers)
	for _, resource := range message.Answers {
		if resource.Header.Type != dnsmessage.TypeCNAME || c.wantsAliases() {
			c.take(&r.answers, resource, final)
		}
	}
	c.empty = len(r.answers) == before && message.RCode == dnsmessage.RCodeSuccess && !message.Truncated
	for _, resource := range message.Authorities {
		c.take(&r.authorities, resource, final)
	}
	for i, additional := range message.Additionals {
		if additional.Header.Type == dnsmessage.TypeOPT {
			r.edns = &message.Additionals[i]
			continue
		}
		c.take(&r.additionals, additional, final)
	}
	return "", nil
}

// HidesAlias reports whether the name may be an alias all the same, to be asked for by [Chain.AddAlias]: CoreDNS leaves an alias out if it leads to a name in
// its zone that it does not know.
func (c *Chain) HidesAlias() bool {
	of := c.query.Question.Type
	return c.empty && (of == dnsmessage.TypeA || of == dnsmessage.TypeAAAA)
}

// AddAlias takes the answer to the question whether a name is an alias. It returns what [Chain.Add] does.
func (c *Chain) AddAlias(asked string, answer []byte) (next string, _ error) {
	var message dnsmessage.Message
	if err := message.Unpack(answer); err != nil {
		return "", fmt.Errorf("answer to %s: %w", asked, err)
	}
	final, next, err := c.follow(canonical(asked), message.Answers)
	if home, own := c.view.Home(final); err == nil && next == "" && own && final != canonical(asked) {
		next = home // it may hide an alias in turn
	}
	return next, err
}

// wantsAliases reports whether the client asks for an alias itself, not for where it leads.
func (c *Chain) wantsAliases() bool {
	return c.query.Question.Type == dnsmessage.TypeCNAME || c.query.Question.Type == dnsmessage.TypeALL
}

// follow takes the aliases that start at a name. It returns the name at the end, or the consumer's name that is to be asked for.
func (c *Chain) follow(name string, records []dnsmessage.Resource) (final, next string, _ error) {
	if c.wantsAliases() {
		return name, "", nil
	}
	for {
		at := slices.IndexFunc(records, func(resource dnsmessage.Resource) bool {
			return resource.Header.Type == dnsmessage.TypeCNAME && canonical(resource.Header.Name.String()) == name
		})
		if at < 0 {
			return name, "", nil
		}
		if c.links++; c.links > maxLinks {
			return "", "", errLoop
		}
		alias, ok := records[at].Body.(*dnsmessage.CNAMEResource)
		if !ok {
			return "", "", errLoop
		}
		target := canonical(alias.CNAME.String())
		shown, own := c.view.Home(target)
		seen, err := dnsmessage.NewName(shown + ".")
		if err != nil {
			return "", "", fmt.Errorf("alias %s: %w", name, err)
		}
		header := records[at].Header
		header.Name = c.owner
		c.reply.answers = append(c.reply.answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.CNAMEResource{CNAME: seen}})
		c.owner, name = seen, target
		if kind, _ := c.view.Look(target); !own && (kind == Mapped || kind == Absent) {
			return "", target, nil
		}
	}
}

// take adds a record with the names of the consumer. Records of other types are left out: the few that the DNS of a cluster has for its own domain are
// signatures of what the names were.
func (c *Chain) take(to *[]dnsmessage.Resource, resource dnsmessage.Resource, final string) {
	home := func(name dnsmessage.Name) dnsmessage.Name { return renamed(name, c.view.home) }
	zone := func(name dnsmessage.Name) dnsmessage.Name { return renamed(name, c.view.zone) }
	switch owner := canonical(resource.Header.Name.String()); {
	case owner == final && resource.Header.Type != dnsmessage.TypeSOA:
		resource.Header.Name = c.owner
	case resource.Header.Type == dnsmessage.TypeSOA, resource.Header.Type == dnsmessage.TypeNS:
		resource.Header.Name = zone(resource.Header.Name)
	default:
		resource.Header.Name = home(resource.Header.Name)
	}
	switch body := resource.Body.(type) {
	case *dnsmessage.AResource, *dnsmessage.AAAAResource, *dnsmessage.TXTResource:
	case *dnsmessage.CNAMEResource:
		resource.Body = &dnsmessage.CNAMEResource{CNAME: home(body.CNAME)}
	case *dnsmessage.PTRResource:
		resource.Body = &dnsmessage.PTRResource{PTR: home(body.PTR)}
	case *dnsmessage.SRVResource:
		resource.Body = &dnsmessage.SRVResource{Priority: body.Priority, Weight: body.Weight, Port: body.Port, Target: home(body.Target)}
	case *dnsmessage.MXResource:
		resource.Body = &dnsmessage.MXResource{Pref: body.Pref, MX: home(body.MX)}
	case *dnsmessage.NSResource:
		resource.Body = &dnsmessage.NSResource{NS: zone(body.NS)}
	case *dnsmessage.SOAResource:
		changed := *body
		changed.NS, changed.MBox = zone(body.NS), zone(body.MBox)
		resource.Body = &changed
	default:
		return
	}
	*to = append(*to, resource)
}

func (v *View) home(name string) string {
	home, _ := v.Home(name)
	return home
}

func renamed(name dnsmessage.Name, by func(string) string) dnsmessage.Name {
	if changed, err := dnsmessage.NewName(by(canonical(name.String())) + "."); err == nil {
		return changed
	}
	return name
}

// End completes the answer: the last name does not exist at the consumer, as far as this cluster knows.
func (c *Chain) End() { c.reply.code = dnsmessage.RCodeNameError }

// Pack returns the answer, of at most so many bytes; 0 for any number.
func (c *Chain) Pack(most int) []byte { return c.reply.pack(c.query, most) }

// Reverse returns the answer to a question for the names of an address, with those of the consumer. Names that this cluster has in other namespaces are left
// out if they could be read as the consumer's.
func (v *View) Reverse(q *Query, answer []byte, most int) ([]byte, error) {
	var message dnsmessage.Message
	if err := message.Unpack(answer); err != nil {
		return nil, fmt.Errorf("answer to %s: %w", q.Name(), err)
	}
	changed := false
	kept := message.Answers[:0]
	for _, resource := range message.Answers {
		name, ok := resource.Body.(*dnsmessage.PTRResource)
		if !ok {
			kept = append(kept, resource)
			continue
		}
		target := canonical(name.PTR.String())
		home, own := v.Home(target)
		kind, _ := v.Look(target)
		switch {
		case own:
			resource.Body, changed = &dnsmessage.PTRResource{PTR: renamed(name.PTR, func(string) string { return home })}, true
		case kind == Absent || kind == Mapped:
			changed = true
			continue
		}
		kept = append(kept, resource)
	}
	if !changed {
		return answer, nil // as it is
	}
	message.Answers = kept
	if message.ID = q.Header.ID; len(kept) == 0 {
		message.RCode = dnsmessage.RCodeNameError
	}
	message.AuthenticData = false
	packed, err := message.Pack()
	if err != nil || most > 0 && len(packed) > most {
		r := reply{code: message.RCode, recursion: message.RecursionAvailable, cut: true}
		return r.pack(q, most), nil
	}
	return packed, nil
}

// pack returns the message for a client. One that is too large for it loses its records, so that the client asks again over TCP.
func (r *reply) pack(q *Query, most int) []byte {
	message := dnsmessage.Message{Header: dnsmessage.Header{
		ID: q.Header.ID, Response: true, OpCode: q.Header.OpCode, Authoritative: r.authoritative, Truncated: r.cut,
		RecursionDesired: q.Header.RecursionDesired, RecursionAvailable: r.recursion || r.authoritative, CheckingDisabled: q.Header.CheckingDisabled, RCode: r.code,
	}}
	if q.Question.Name.Length > 0 {
		message.Questions = []dnsmessage.Question{q.Question}
	}
	if edns := r.edns; edns != nil {
		message.Additionals = []dnsmessage.Resource{*edns}
	} else if q.EDNS != nil {
		own := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(".")}, Body: &dnsmessage.OPTResource{}}
		if own.Header.SetEDNS0(ownSize, r.code, q.EDNS.Header.DNSSECAllowed()) == nil {
			message.Additionals = []dnsmessage.Resource{own}
		}
	}
	short := message
	message.Answers, message.Authorities = r.answers, r.authorities
	message.Additionals = slices.Concat(r.additionals, message.Additionals)
	packed, err := message.Pack()
	if err == nil && (most == 0 || len(packed) <= most) {
		return packed
	}
	short.Truncated = true
	if packed, err = short.Pack(); err != nil {
		return nil // the question was parsed, so it can be packed
	}
	return packed
}
