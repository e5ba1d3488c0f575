// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
)

// record reads a record from a line as a zone file has it.
func record(t testing.TB, line string) dnsmessage.Resource {
	t.Helper()
	words := strings.Fields(line)
	resource := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(words[0]), Class: dnsmessage.ClassINET, TTL: 30}}
	name := func(at int) dnsmessage.Name { return dnsmessage.MustNewName(words[at]) }
	switch words[1] {
	case "A":
		resource.Body = &dnsmessage.AResource{A: netip.MustParseAddr(words[2]).As4()}
	case "AAAA":
		resource.Body = &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(words[2]).As16()}
	case "CNAME":
		resource.Body = &dnsmessage.CNAMEResource{CNAME: name(2)}
	case "SRV":
		resource.Body = &dnsmessage.SRVResource{Weight: 100, Port: 8080, Target: name(2)}
	case "PTR":
		resource.Body = &dnsmessage.PTRResource{PTR: name(2)}
	case "TXT":
		resource.Body = &dnsmessage.TXTResource{TXT: []string{words[2]}}
	case "NS":
		resource.Body = &dnsmessage.NSResource{NS: name(2)}
	case "SOA":
		resource.Body = &dnsmessage.SOAResource{NS: name(2), MBox: name(3), Serial: 7, MinTTL: 5}
	case "SIG": // an RRSIG
		resource.Header.Type = 46
		resource.Body = &dnsmessage.UnknownResource{Type: 46, Data: []byte("signature")}
	default:
		t.Fatal("no such record:", line)
	}
	return resource
}

// lines writes the records of a section.
func lines(all []dnsmessage.Resource) (text []string) {
	for _, resource := range all {
		line := resource.Header.Name.String() + " "
		switch body := resource.Body.(type) {
		case *dnsmessage.AResource:
			line += "A " + netip.AddrFrom4(body.A).String()
		case *dnsmessage.AAAAResource:
			line += "AAAA " + netip.AddrFrom16(body.AAAA).String()
		case *dnsmessage.CNAMEResource:
			line += "CNAME " + body.CNAME.String()
		case *dnsmessage.SRVResource:
			line += fmt.Sprintf("SRV %s", body.Target.String())
		case *dnsmessage.PTRResource:
			line += "PTR " + body.PTR.String()
		case *dnsmessage.TXTResource:
			line += "TXT " + body.TXT[0]
		case *dnsmessage.NSResource:
			line += "NS " + body.NS.String()
		case *dnsmessage.SOAResource:
			line += "SOA " + body.NS.String() + " " + body.MBox.String()
		case *dnsmessage.OPTResource:
			line = fmt.Sprintf("OPT size %d", resource.Header.Class)
			if resource.Header.DNSSECAllowed() {
				line += " DO"
			}
			for _, option := range body.Options {
				line += fmt.Sprintf(" %d:%s", option.Code, option.Data)
			}
		default:
			line += fmt.Sprintf("%v", resource.Header.Type)
		}
		text = append(text, line)
	}
	return text
}

func question(name string, of dnsmessage.Type) dnsmessage.Question {
	return dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: of, Class: dnsmessage.ClassINET}
}

func edns(t testing.TB, size int, options ...dnsmessage.Option) dnsmessage.Resource {
	t.Helper()
	resource := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(".")}, Body: &dnsmessage.OPTResource{Options: options}}
	if err := resource.Header.SetEDNS0(size, dnsmessage.RCodeSuccess, true); err != nil {
		t.Fatal(err)
	}
	return resource
}

// packet packs a message.
func packet(t testing.TB, m dnsmessage.Message) []byte {
	t.Helper()
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func unpack(t testing.TB, packed []byte) (m dnsmessage.Message) {
	t.Helper()
	if err := m.Unpack(packed); err != nil {
		t.Fatal(err)
	}
	return m
}

func parse(t testing.TB, name string, of dnsmessage.Type, further ...dnsmessage.Resource) *Query {
	t.Helper()
	q, err := Parse(packet(t, dnsmessage.Message{
		Header: dnsmessage.Header{ID: 4711, RecursionDesired: true, CheckingDisabled: true}, Questions: []dnsmessage.Question{question(name, of)},
		Additionals: further,
	}))
	if err != nil || q.Refused != dnsmessage.RCodeSuccess {
		t.Fatal(name, err)
	}
	return q
}

// TestReply: the consumer's names are in all records of an answer, whatever this cluster calls them.
func TestReply(t *testing.T) {
	view := NewView("rome.example", milan, mapping)
	const remote = "shop-rome-faf7bb.svc.cluster.local."
	for _, c := range []struct {
		name, question                    string
		of                                dnsmessage.Type
		code                              dnsmessage.RCode
		answers, authorities, additionals []string
		want                              []string
		next                              string
	}{
		{
			name: "A", question: "WeB.shop.svc.rome.Example.", of: dnsmessage.TypeA, answers: []string{"web." + remote + " A 10.1.2.3", "web." + remote + " A 10.1.2.4"},
			want: []string{"WeB.shop.svc.rome.Example. A 10.1.2.3", "WeB.shop.svc.rome.Example. A 10.1.2.4"},
		},
		{
			name: "AAAA", question: "web.shop.svc.rome.example.", of: dnsmessage.TypeAAAA, answers: []string{"web." + remote + " AAAA fd00::1"},
			want: []string{"web.shop.svc.rome.example. AAAA fd00::1"},
		},
		{
			name: "SRV", question: "_http._tcp.web.shop.svc.rome.example.", of: dnsmessage.TypeSRV,
			answers:     []string{"_http._tcp.web." + remote + " SRV web-0.web." + remote},
			additionals: []string{"web-0.web." + remote + " A 10.1.2.3", "web-0.web." + remote + " AAAA fd00::1"},
			want: []string{
				"_http._tcp.web.shop.svc.rome.example. SRV web-0.web.shop.svc.rome.example.", "", "web-0.web.shop.svc.rome.example. A 10.1.2.3",
				"web-0.web.shop.svc.rome.example. AAAA fd00::1",
			},
		},
		{
			name: "no records", question: "web.shop.svc.rome.example.", of: dnsmessage.TypeAAAA,
			authorities: []string{"cluster.local. SOA ns.dns.cluster.local. hostmaster.cluster.local."},
			want:        []string{"", "rome.example. SOA ns.dns.rome.example. hostmaster.rome.example."},
		},
		{
			name: "no name", question: "x.shop.svc.rome.example.", of: dnsmessage.TypeA, code: dnsmessage.RCodeNameError,
			authorities: []string{"cluster.local. SOA ns.dns.cluster.local. hostmaster.cluster.local."},
			want:        []string{"", "rome.example. SOA ns.dns.rome.example. hostmaster.rome.example."},
		},
		{
			name: "the zone", question: "rome.example.", of: dnsmessage.TypeNS, answers: []string{"cluster.local. NS ns.dns.cluster.local."},
			additionals: []string{"ns.dns.cluster.local. A 10.96.0.10"},
			want:        []string{"rome.example. NS ns.dns.rome.example.", "", "ns.dns.rome.example. A 10.96.0.10"},
		},
		{
			name: "TXT", question: "dns-version.rome.example.", of: dnsmessage.TypeTXT, answers: []string{"dns-version.cluster.local. TXT 1.1.0"},
			want: []string{"dns-version.rome.example. TXT 1.1.0"},
		},
		{
			name: "signatures are left out", question: "web.shop.svc.rome.example.", of: dnsmessage.TypeA,
			answers: []string{"web." + remote + " A 10.1.2.3", "web." + remote + " SIG"}, want: []string{"web.shop.svc.rome.example. A 10.1.2.3"},
		},
		{
			name: "an alias to the outside", question: "ext.shop.svc.rome.example.", of: dnsmessage.TypeA,
			answers: []string{"ext." + remote + " CNAME www.example.com.", "www.example.com. CNAME cdn.example.net.", "cdn.example.net. A 192.0.2.1"},
			want:    []string{"ext.shop.svc.rome.example. CNAME www.example.com.", "www.example.com. CNAME cdn.example.net.", "cdn.example.net. A 192.0.2.1"},
		},
		{
			name: "an alias inside", question: "ext.shop.svc.rome.example.", of: dnsmessage.TypeA,
			answers: []string{"ext." + remote + " CNAME web." + remote, "web." + remote + " A 10.1.2.3"},
			want:    []string{"ext.shop.svc.rome.example. CNAME web.shop.svc.rome.example.", "web.shop.svc.rome.example. A 10.1.2.3"},
		},
		{
			name: "an alias to a name of the consumer", question: "ext.shop.svc.rome.example.", of: dnsmessage.TypeA,
			answers: []string{"ext." + remote + " CNAME web.own.svc.rome.example."},
			next:    "web.own.svc.rome.example", want: []string{"ext.shop.svc.rome.example. CNAME web.own.svc.rome.example."},
		},
		{
			name: "the alias itself", question: "ext.shop.svc.rome.example.", of: dnsmessage.TypeCNAME,
			answers: []string{"ext." + remote + " CNAME web." + remote},
			want:    []string{"ext.shop.svc.rome.example. CNAME web.shop.svc.rome.example."},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := parse(t, c.question, c.of)
			_, asked := view.Look(q.Name())
			upstream := dnsmessage.Message{
				Header:    dnsmessage.Header{ID: 1, Response: true, Authoritative: true, RecursionAvailable: true, AuthenticData: true, RCode: c.code},
				Questions: []dnsmessage.Question{question(asked+".", c.of)},
			}
			for from, to := range map[*[]string]*[]dnsmessage.Resource{
				&c.answers: &upstream.Answers, &c.authorities: &upstream.Authorities, &c.additionals: &upstream.Additionals,
			} {
				for _, line := range *from {
					*to = append(*to, record(t, line))
				}
			}
			chain := view.NewChain(q)
			next, err := chain.Add(asked, packet(t, upstream))
			if err != nil || next != c.next {
				t.Fatalf("next %q, %v; want %q", next, err, c.next)
			}
			got := unpack(t, chain.Pack(512))
			header := dnsmessage.Header{
				ID: 4711, Response: true, Authoritative: true, RecursionDesired: true, RecursionAvailable: true, CheckingDisabled: true, RCode: c.code,
			}
			if diff := cmp.Diff(header, got.Header); diff != "" {
				t.Error(diff)
			}
			if len(got.Questions) != 1 || got.Questions[0] != q.Question {
				t.Errorf("the question is %v", got.Questions)
			}
			text := lines(got.Answers)
			for _, section := range [][]dnsmessage.Resource{got.Authorities, got.Additionals} {
				if len(section) > 0 {
					text = append(append(text, ""), lines(section)...)
				}
			}
			if diff := cmp.Diff(c.want, text); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAliases: an alias that names a Service of the consumer leads to that Service, over several namespaces, and to nothing of this cluster.
func TestAliases(t *testing.T) {
	view := NewView("cluster.local", milan, mapping)
	q := parse(t, "db.shop.svc.cluster.local.", dnsmessage.TypeA)
	answer := func(asked string, records ...string) []byte {
		m := dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: []dnsmessage.Question{question(asked+".", dnsmessage.TypeA)}}
		for _, line := range records {
			m.Answers = append(m.Answers, record(t, line))
		}
		return packet(t, m)
	}
	// The DNS of this cluster follows the alias to its own namespace shop, which belongs to another user.
	chain := view.NewChain(q)
	next, err := chain.Add("db.shop-rome-faf7bb.svc.cluster.local", answer("db.shop-rome-faf7bb.svc.cluster.local",
		"db.shop-rome-faf7bb.svc.cluster.local. CNAME web.shop.svc.cluster.local.", "web.shop.svc.cluster.local. A 192.0.2.66"))
	if err != nil || next != "web.shop.svc.cluster.local" {
		t.Fatal(next, err)
	}
	if next, err = chain.Add(
		"web.shop-rome-faf7bb.svc.cluster.local",
		answer("web.shop-rome-faf7bb.svc.cluster.local", "web.shop-rome-faf7bb.svc.cluster.local. A 10.1.2.3"),
	); err != nil || next != "" {
		t.Fatal(next, err)
	}
	want := []string{"db.shop.svc.cluster.local. CNAME web.shop.svc.cluster.local.", "web.shop.svc.cluster.local. A 10.1.2.3"}
	if diff := cmp.Diff(want, lines(unpack(t, chain.Pack(0)).Answers)); diff != "" {
		t.Error(diff)
	}
	// The DNS of this cluster leaves the alias out, since it knows no such name.
	chain = view.NewChain(q)
	if next, err = chain.Add("db.shop-rome-faf7bb.svc.cluster.local", answer("db.shop-rome-faf7bb.svc.cluster.local")); err != nil ||
		next != "" || !chain.HidesAlias() {
		t.Fatal(next, err)
	}
	if next, err = chain.AddAlias(
		"db.shop-rome-faf7bb.svc.cluster.local",
		answer("db.shop-rome-faf7bb.svc.cluster.local", "db.shop-rome-faf7bb.svc.cluster.local. CNAME web.own.svc.cluster.local."),
	); err != nil || next != "web.own.svc.cluster.local" {
		t.Fatal(next, err)
	}
	if next, err = chain.Add("web.own.svc.cluster.local", answer("web.own.svc.cluster.local", "web.own.svc.cluster.local. A 10.1.2.3")); err != nil ||
		next != "" || chain.HidesAlias() {
		t.Fatal(next, err)
	}
	want = []string{"db.shop.svc.cluster.local. CNAME web.own.svc.cluster.local.", "web.own.svc.cluster.local. A 10.1.2.3"}
	if diff := cmp.Diff(want, lines(unpack(t, chain.Pack(0)).Answers)); diff != "" {
		t.Error(diff)
	}
	// Aliases without end.
	chain = view.NewChain(q)
	for range maxLinks {
		if _, err = chain.Add(
			"db.shop-rome-faf7bb.svc.cluster.local",
			answer("db.shop-rome-faf7bb.svc.cluster.local", "db.shop-rome-faf7bb.svc.cluster.local. CNAME db.shop.svc.cluster.local."),
		); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = chain.Add(
		"db.shop-rome-faf7bb.svc.cluster.local",
		answer("db.shop-rome-faf7bb.svc.cluster.local", "db.shop-rome-faf7bb.svc.cluster.local. CNAME db.shop.svc.cluster.local."),
	); err == nil {
		t.Error("aliases have no end")
	}
	// An alias to a namespace that is not here.
	chain = view.NewChain(q)
	if next, err = chain.Add("db.shop-rome-faf7bb.svc.cluster.local", answer(
		"db.shop-rome-faf7bb.svc.cluster.local", "db.shop-rome-faf7bb.svc.cluster.local. CNAME pg.prod.svc.cluster.local.",
		"pg.prod.svc.cluster.local. A 192.0.2.66",
	)); err != nil || next != "pg.prod.svc.cluster.local" {
		t.Fatal(next, err)
	}
	chain.End()
	if got := unpack(t, chain.Pack(0)); got.RCode != dnsmessage.RCodeNameError || len(got.Answers) != 1 {
		t.Errorf("answered with %v %v", got.RCode, lines(got.Answers))
	}
}

// TestReverse: an address of a remote namespace has the consumer's name, and no name that would be another one there.
func TestReverse(t *testing.T) {
	same, other := NewView("cluster.local", milan, mapping), NewView("rome.example", milan, mapping)
	for _, c := range []struct {
		view   *View
		target string
		want   []string
		code   dnsmessage.RCode
	}{
		{same, "web-0.web.shop-rome-faf7bb.svc.cluster.local.", []string{"3.2.1.10.in-addr.arpa. PTR web-0.web.shop.svc.cluster.local."}, 0},
		{other, "web-0.web.shop-rome-faf7bb.svc.cluster.local.", []string{"3.2.1.10.in-addr.arpa. PTR web-0.web.shop.svc.rome.example."}, 0},
		{same, "db.prod.svc.cluster.local.", nil, dnsmessage.RCodeNameError},
		{same, "web.shop.svc.cluster.local.", nil, dnsmessage.RCodeNameError},
		{other, "db.prod.svc.cluster.local.", []string{"3.2.1.10.in-addr.arpa. PTR db.prod.svc.cluster.local."}, 0},
		{same, "host.example.com.", []string{"3.2.1.10.in-addr.arpa. PTR host.example.com."}, 0},
	} {
		q := parse(t, "3.2.1.10.in-addr.arpa.", dnsmessage.TypePTR)
		answer := packet(t, dnsmessage.Message{
			Header: dnsmessage.Header{ID: 4711, Response: true}, Questions: []dnsmessage.Question{q.Question},
			Answers: []dnsmessage.Resource{record(t, "3.2.1.10.in-addr.arpa. PTR "+c.target)},
		})
		packed, err := c.view.Reverse(q, answer, 512)
		if err != nil {
			t.Fatal(err)
		}
		got := unpack(t, packed)
		if diff := cmp.Diff(c.want, lines(got.Answers)); diff != "" || got.RCode != c.code || got.ID != 4711 {
			t.Errorf("%s: %v, %v %s", c.target, got.Header, got.RCode, diff)
		}
	}
}

// TestEDNS: what a client states by EDNS(0) is passed on, and so is the answer; answers of ours have the record as well. A client gets no more than it accepts.
func TestEDNS(t *testing.T) {
	view := NewView("cluster.local", milan, mapping)
	option := dnsmessage.Option{Code: 8, Data: []byte("subnet")}
	q := parse(t, "web.shop.svc.cluster.local.", dnsmessage.TypeA, edns(t, 1400, option))
	_, asked := view.Look(q.Name())
	sent, err := q.For(asked, q.Question.Type)
	if err != nil {
		t.Fatal(err)
	}
	got := unpack(t, sent)
	if diff := cmp.Diff([]string{"OPT size 1400 DO 8:subnet"}, lines(got.Additionals)); diff != "" ||
		!got.RecursionDesired || !got.CheckingDisabled || got.Response {
		t.Error(got.Header, diff)
	}
	if !Same(packet(t, dnsmessage.Message{Header: dnsmessage.Header{ID: 99, Response: true}, Questions: got.Questions}), 99, asked, q.Question) {
		t.Error("the answer is not known")
	}
	upstream := dnsmessage.Message{
		Header: dnsmessage.Header{Response: true}, Questions: got.Questions,
		Additionals: []dnsmessage.Resource{edns(t, 4096, dnsmessage.Option{Code: 10, Data: []byte("cookie")})},
	}
	for i := range 100 {
		upstream.Answers = append(upstream.Answers, record(t, fmt.Sprintf("%s. A 10.0.0.%d", asked, i)))
	}
	chain := view.NewChain(q)
	if _, err := chain.Add(asked, packet(t, upstream)); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]string{q.Size(): "cut, 0 records", 0: "100 records"} {
		answer := chain.Pack(most)
		m := unpack(t, answer)
		text := fmt.Sprintf("%d records", len(m.Answers))
		if m.Truncated {
			text = "cut, " + text
		}
		if text != want || most > 0 && len(answer) > most || lines(m.Additionals)[0] != "OPT size 4096 DO 10:cookie" {
			t.Errorf("of %d bytes: %s in %d bytes, %v", most, text, len(answer), lines(m.Additionals))
		}
	}
	if own := lines(unpack(t, view.Negative(q)).Additionals); len(own) != 1 || own[0] != "OPT size 1232 DO" {
		t.Errorf("an answer of ours has %v", own)
	}
	if plain := parse(t, "x.", dnsmessage.TypeA); plain.Size() != 512 || len(unpack(t, view.Negative(plain)).Additionals) != 0 {
		t.Error("a client without EDNS(0) is answered with it, or with more than it accepts")
	}
}

// TestParse: what is no question of a client is refused with the code that the protocol has for it, or not answered at all.
func TestParse(t *testing.T) {
	single := []dnsmessage.Question{question("a.", dnsmessage.TypeA)}
	for name, c := range map[string]struct {
		packet []byte
		want   string
	}{
		"a question":       {packet(t, dnsmessage.Message{Questions: single}), "RCodeSuccess"},
		"an answer":        {packet(t, dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: single}), "silent"},
		"nothing":          {nil, "silent"},
		"a part":           {packet(t, dnsmessage.Message{Questions: single})[:11], "silent"},
		"no question":      {packet(t, dnsmessage.Message{}), "RCodeFormatError"},
		"two questions":    {packet(t, dnsmessage.Message{Questions: append(single, single...)}), "RCodeFormatError"},
		"a cut question":   {packet(t, dnsmessage.Message{Questions: single})[:14], "RCodeFormatError"},
		"an update":        {packet(t, dnsmessage.Message{Header: dnsmessage.Header{OpCode: 5}, Questions: single}), "RCodeNotImplemented"},
		"a transfer":       {packet(t, dnsmessage.Message{Questions: []dnsmessage.Question{question("a.", 252)}}), "RCodeRefused"},
		"with answers":     {packet(t, dnsmessage.Message{Questions: single, Answers: []dnsmessage.Resource{record(t, "a. A 10.0.0.1")}}), "RCodeFormatError"},
		"a loop of labels": {append(packet(t, dnsmessage.Message{Questions: single})[:12], 0xc0, 12, 0, 1, 0, 1), "RCodeFormatError"},
	} {
		q, err := Parse(c.packet)
		got := "silent"
		if err == nil {
			got = q.Refused.String()
			answer := q.Error(q.Refused)
			if m := unpack(t, answer); m.RCode != q.Refused || !m.Response || len(answer) > max(len(c.packet), headerSize) {
				t.Errorf("%s: the answer has %d bytes, %v", name, len(answer), m.Header)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// FuzzAnswer: neither a client nor the DNS of this cluster makes anything fail, and no answer is larger than the client accepts.
func FuzzAnswer(f *testing.F) {
	q := dnsmessage.Message{
		Questions:   []dnsmessage.Question{question("web.shop.svc.cluster.local.", dnsmessage.TypeSRV)},
		Additionals: []dnsmessage.Resource{edns(f, 1232)},
	}
	a := dnsmessage.Message{Header: dnsmessage.Header{Response: true}, Questions: q.Questions, Answers: []dnsmessage.Resource{
		record(f, "web.shop-rome-faf7bb.svc.cluster.local. CNAME web.own.svc.cluster.local."), record(f, "web.own.svc.cluster.local. SRV a.own.svc.cluster.local."),
	}, Authorities: []dnsmessage.Resource{record(f, "cluster.local. SOA ns.dns.cluster.local. hostmaster.cluster.local.")}}
	f.Add(packet(f, q), packet(f, a))
	f.Add(
		packet(f, dnsmessage.Message{Questions: []dnsmessage.Question{question("1.2.3.10.in-addr.arpa.", dnsmessage.TypePTR)}}),
		packet(f, dnsmessage.Message{Answers: []dnsmessage.Resource{record(f, "1.2.3.10.in-addr.arpa. PTR a.own.svc.cluster.local.")}}),
	)
	views := []*View{
		NewView("cluster.local", milan, mapping),
		NewView("rome.example", Cluster{Domain: "cluster.local", Open: []string{"a"}, Server: "liqo-dns.liqo"}, mapping),
	}
	f.Fuzz(func(t *testing.T, asked, answered []byte) {
		q, err := Parse(asked)
		if err != nil {
			return
		}
		if q.Refused != dnsmessage.RCodeSuccess {
			q.Error(q.Refused)
			return
		}
		for _, view := range views {
			kind, name := view.Look(q.Name())
			if len(name) > longest {
				t.Errorf("asks for %d characters", len(name))
			}
			if _, err := q.For(name, q.Question.Type); err != nil {
				t.Errorf("%q cannot be asked for: %v", name, err)
			}
			most, answers := q.Size(), [][]byte{view.Negative(q)}
			if kind == Reverse {
				if packed, err := view.Reverse(q, answered, most); err == nil && len(answered) <= most {
					answers = append(answers, packed)
				}
			}
			chain := view.NewChain(q)
			if _, err := chain.Add(name, answered); err == nil {
				_, _ = chain.AddAlias(name, answered) // must not fail otherwise than by an error
				chain.End()
				answers = append(answers, chain.Pack(most))
			}
			for _, packed := range answers {
				var m dnsmessage.Message
				if err := m.Unpack(packed); err != nil || len(packed) > most {
					t.Errorf("%d bytes that cannot be read: %v", len(packed), err)
				}
			}
		}
	})
}
