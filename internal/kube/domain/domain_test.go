// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParse: the domain of a cluster is what its kubelets state, whatever else a node or a pod adds, and is never guessed.
func TestParse(t *testing.T) {
	address := func(all ...string) (parsed []netip.Addr) {
		for _, one := range all {
			parsed = append(parsed, netip.MustParseAddr(one))
		}
		return parsed
	}
	for _, c := range []struct {
		name, text string
		want       Resolver
	}{
		{
			"usual", "search liqo.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
			Resolver{Domain: "cluster.local", Servers: address("10.96.0.10")},
		},
		{
			"domains of the node", "nameserver 10.96.0.10\nsearch liqo.svc.cluster.local svc.cluster.local cluster.local eu.compute.internal example.com",
			Resolver{Domain: "cluster.local", Servers: address("10.96.0.10"), Searches: []string{"eu.compute.internal", "example.com"}},
		},
		{
			"a node without domains, as systemd-resolved states it",
			"search liqo.svc.cluster.local svc.cluster.local cluster.local .\nnameserver 10.96.0.10\noptions ndots:5\n",
			Resolver{Domain: "cluster.local", Servers: address("10.96.0.10")},
		},
		{
			"domains that no pod may have", "search a.svc.x svc.x x . eu.example. -bad- corp_lan.example two..dots " + strings.Repeat("long.", 60) + "example\n",
			Resolver{Domain: "x", Searches: []string{"eu.example", "corp_lan.example"}},
		},
		{
			"another domain, upper case, dots at the end",
			"search liqo.svc.K8s.Example.COM. svc.k8s.example.com. k8s.example.com.\nnameserver fd00:10::a\nnameserver 10.96.0.10",
			Resolver{Domain: "k8s.example.com", Servers: address("fd00:10::a", "10.96.0.10")},
		},
		{"one label", "search a.svc.rome svc.rome rome\r\nnameserver 10.0.0.1\r\n", Resolver{Domain: "rome", Servers: address("10.0.0.1")}},
		{"a domain that starts with svc", "search a.svc.svc.example svc.svc.example svc.example\n", Resolver{Domain: "svc.example"}},
		{"a namespace named svc", "search svc.svc.cluster.local svc.cluster.local cluster.local\n", Resolver{Domain: "cluster.local"}},
		{"the last search counts", "search a.svc.one svc.one one\nsearch a.svc.two svc.two two\n", Resolver{Domain: "two"}},
		{
			"comments and tabs", "# made by a kubelet\n; too\nsearch\ta.svc.x\tsvc.x\tx\nnameserver\t10.0.0.1\nnameserver nonsense\n",
			Resolver{Domain: "x", Servers: address("10.0.0.1")},
		},
		{
			"four servers", "search a.svc.x svc.x x\nnameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.4",
			Resolver{Domain: "x", Servers: address("10.0.0.1", "10.0.0.2", "10.0.0.3")},
		},
		{"of a node", "search example.com\nnameserver 192.168.1.1", Resolver{}},
		{"of a node with a domain named svc", "search svc.example.com example.com\nnameserver 192.168.1.1", Resolver{}},
		{"without the whole domain", "search a.svc.x svc.x\n", Resolver{}},
		{"two domains", "search a.svc.x svc.y y\n", Resolver{}},
		{"no namespace", "search svc.x x\n", Resolver{}},
		{"no domain name", "search a.svc._x svc._x _x\n", Resolver{}},
		{"empty", "", Resolver{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse(c.text)
			if (err != nil) != (c.want.Domain == "") {
				t.Fatalf("error: %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "search path") {
				t.Errorf("the error does not state what was seen: %v", err)
			}
			if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
}
