// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"reflect"
	"testing"
)

// ports reads ports that are right.
func ports(texts ...string) []Port {
	parsed, err := ParsePorts(texts)
	if err != nil {
		panic(err)
	}
	return canonical(parsed)
}

func TestParsePort(t *testing.T) {
	check(t, ParsePort, []row{
		{text: "tcp/443", want: "tcp/443"},
		{text: " UDP/31000 ", want: "udp/31000"},
		{text: "udp/31000-31010", want: "udp/31000-31010"},
		{text: "tcp/1-65535", want: "tcp/1-65535"},
		{text: "tcp/7-7", want: "tcp/7"},
		{text: "icmp", want: "icmp"},
		{text: "icmp/8", refused: "ICMP has no ports"},
		{text: "tcp", refused: "no protocol and port"},
		{text: "443", refused: "no protocol and port"},
		{text: "443/tcp", refused: "no protocol and port"},
		{text: "sctp/443", refused: "no protocol and port"},
		{text: "", refused: "no protocol and port"},
		{text: "tcp/0", refused: "neither a port"},
		{text: "tcp/65536", refused: "neither a port"},
		{text: "tcp/-1", refused: "neither a port"},
		{text: "tcp/https", refused: "write for example tcp/443 or tcp/31000-31010"},
		{text: "udp/20-10", refused: "neither a port"},
		{text: "udp/10-", refused: "neither a port"},
		{text: "udp/1,2", refused: "neither a port"},
	})
}

func TestPortValidate(t *testing.T) {
	for _, p := range []Port{{}, {Protocol: TCP}, {Protocol: ICMP, Last: 3}, {Protocol: UDP, First: 3, Last: 2}, {Protocol: `tcp"`, First: 1, Last: 1}} {
		if p.validate() == nil {
			t.Errorf("%#v is accepted", p)
		}
	}
}

func TestReadCounters(t *testing.T) {
	ruleset := []byte(`{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "inet", "name": "playground-fault", "handle": 1}},
		{"chain": {"family": "inet", "table": "playground-fault", "name": "forward", "handle": 1}},
		{"rule": {"table": "playground-fault", "comment": "rome -> milan: closed", "expr": [{"match": {"op": "=="}}, {"counter": {"packets": 3, "bytes": 30}}, {"drop": null}]}},
		{"rule": {"table": "playground-fault", "comment": "rome -> milan: closed", "expr": [{"counter": {"packets": 1, "bytes": 5}}, {"drop": null}]}},
		{"rule": {"table": "playground-fault", "comment": "rome -> host: loss 5%", "expr": [{"counter": {"packets": 9, "bytes": 9}}]}},
		{"rule": {"table": "playground-fault", "expr": [{"accept": null}]}},
		{"rule": {"table": "other", "comment": "rome -> milan: closed", "expr": [{"counter": {"packets": 7, "bytes": 7}}]}},
		{"rule": {"table": "playground-fault", "comment": "milan -> rome: passed replies of tcp/443", "expr": [{"counter": {"packets": 2, "bytes": 80}}, {"accept": null}]}}]}`)
	all, err := ReadCounters(ruleset)
	if err != nil || len(all) != 3 {
		t.Fatalf("got %+v, %v", all, err)
	}
	got, err := ReadCounters(ruleset, "milan", "rome")
	if err != nil {
		t.Fatal(err)
	}
	want := []Counter{{"rome", "milan", Dropped, "closed", 4, 35}, {"milan", "rome", Passed, "replies of tcp/443", 2, 80}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if _, err := ReadCounters([]byte("Error:")); err == nil {
		t.Error("text that is not JSON was read without an error")
	}
}
