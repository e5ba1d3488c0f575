// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
)

// hosts is the specification of a pod with these lines in its hosts file.
func hosts(lines ...string) *corev1.PodSpec {
	spec := &corev1.PodSpec{Containers: []corev1.Container{
		{Env: []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "kubernetes.default"}, {Name: portVariable, Value: "6443"}, {Name: portVariable, Value: "1"}}},
	}}
	for _, line := range lines {
		words := strings.Fields(line)
		spec.HostAliases = append(spec.HostAliases, corev1.HostAlias{IP: words[0], Hostnames: words[1:]})
	}
	return spec
}

const usual = "10.81.0.1 kubernetes.default kubernetes.default.svc kubernetes.default.svc.rome.example kubernetes.default.svc.cluster.local"

// TestAPIServer: what a pod's hosts file has for the names of the API server is also the answer of the name server, under each name that a cluster's
// DNS knows; other names are none of it.
func TestAPIServer(t *testing.T) {
	same, other := NewView("cluster.local", milan, mapping), NewView("rome.example", milan, mapping)
	offloaded := NewView("cluster.local", milan, map[string]string{"default": "default-rome-faf7bb"})
	const none = "another"
	for _, c := range []struct {
		name string
		view *View
		spec *corev1.PodSpec
		ask  string
		of   dnsmessage.Type
		want string
	}{
		{"full name", same, hosts(usual), "kubernetes.default.svc.cluster.local.", dnsmessage.TypeA, "kubernetes.default.svc.cluster.local. A 10.81.0.1"},
		{"in another case", same, hosts(usual), "Kubernetes.DEFAULT.svc.cluster.Local.", dnsmessage.TypeA, "Kubernetes.DEFAULT.svc.cluster.Local. A 10.81.0.1"},
		{
			"full name of the consumer", other, hosts(usual), "kubernetes.default.svc.rome.example.", dnsmessage.TypeA,
			"kubernetes.default.svc.rome.example. A 10.81.0.1",
		},
		{
			"full name of the provider", other, hosts(usual), "kubernetes.default.svc.cluster.local.", dnsmessage.TypeA,
			"kubernetes.default.svc.cluster.local. A 10.81.0.1",
		},
		{
			"full name that the file does not have", other, hosts("10.81.0.1 kubernetes.default"), "kubernetes.default.svc.rome.example.",
			dnsmessage.TypeA, "kubernetes.default.svc.rome.example. A 10.81.0.1",
		},
		{"short name", same, hosts(usual), "kubernetes.default.", dnsmessage.TypeA, "kubernetes.default. A 10.81.0.1"},
		{"with svc", same, hosts(usual), "kubernetes.default.svc.", dnsmessage.TypeA, "kubernetes.default.svc. A 10.81.0.1"},
		{"in its own namespace", same, hosts(usual + " kubernetes"), "kubernetes.", dnsmessage.TypeA, "kubernetes. A 10.81.0.1"},
		{"in another namespace", same, hosts(usual), "kubernetes.", dnsmessage.TypeA, none},
		{"of another namespace", same, hosts(usual), "kubernetes.shop.svc.cluster.local.", dnsmessage.TypeA, none},
		{
			"the user's own entry", same, hosts("192.0.2.9 kubernetes.default.svc.cluster.local", usual), "kubernetes.default.svc.cluster.local.",
			dnsmessage.TypeA, "kubernetes.default.svc.cluster.local. A 192.0.2.9",
		},
		{
			"the rest beside it", same, hosts("192.0.2.9 kubernetes.default.svc.cluster.local", usual), "kubernetes.default.svc.", dnsmessage.TypeA,
			"kubernetes.default.svc. A 10.81.0.1",
		},
		{"IPv6 for IPv4", same, hosts(usual), "kubernetes.default.svc.cluster.local.", dnsmessage.TypeAAAA, ""},
		{
			"IPv6", same, hosts("fd00::1 kubernetes.default"), "kubernetes.default.svc.cluster.local.", dnsmessage.TypeAAAA,
			"kubernetes.default.svc.cluster.local. AAAA fd00::1",
		},
		{"IPv4 for IPv6", same, hosts("fd00::1 kubernetes.default"), "kubernetes.default.svc.cluster.local.", dnsmessage.TypeA, ""},
		{"text", same, hosts(usual), "kubernetes.default.svc.cluster.local.", dnsmessage.TypeTXT, ""},
		{
			"a port", same, hosts(usual), "_https._tcp.kubernetes.default.svc.cluster.local.", dnsmessage.TypeSRV,
			"_https._tcp.kubernetes.default.svc.cluster.local. SRV kubernetes.default.svc.cluster.local. | kubernetes.default.svc.cluster.local. A 10.81.0.1",
		},
		{
			"a port at the consumer", other, hosts(usual), "_https._tcp.kubernetes.default.svc.rome.example.", dnsmessage.TypeSRV,
			"_https._tcp.kubernetes.default.svc.rome.example. SRV kubernetes.default.svc.rome.example. | kubernetes.default.svc.rome.example. A 10.81.0.1",
		},
		{"an address of a port", same, hosts(usual), "_https._tcp.kubernetes.default.svc.cluster.local.", dnsmessage.TypeA, ""},
		{"another port", same, hosts(usual), "_http._tcp.kubernetes.default.svc.cluster.local.", dnsmessage.TypeSRV, none},
		{"protocols", same, hosts(usual), "_tcp.kubernetes.default.svc.cluster.local.", dnsmessage.TypeA, ""},
		{"its namespace", same, hosts(usual), "default.svc.cluster.local.", dnsmessage.TypeA, ""},
		{"its namespace, offloaded", offloaded, hosts(usual), "default.svc.cluster.local.", dnsmessage.TypeA, none},
		{
			"in its namespace, offloaded", offloaded, hosts(usual), "kubernetes.default.svc.cluster.local.", dnsmessage.TypeA,
			"kubernetes.default.svc.cluster.local. A 10.81.0.1",
		},
		{"another Service of its namespace", same, hosts(usual), "db.default.svc.cluster.local.", dnsmessage.TypeA, none},
		{"below it", same, hosts(usual), "a.kubernetes.default.svc.cluster.local.", dnsmessage.TypeA, none},
		{"of an address", same, hosts(usual), "1.0.81.10.in-addr.arpa.", dnsmessage.TypePTR, "1.0.81.10.in-addr.arpa. PTR kubernetes.default.svc.cluster.local."},
		{
			"of an address at the consumer", other, hosts(usual), "1.0.81.10.in-addr.arpa.", dnsmessage.TypePTR,
			"1.0.81.10.in-addr.arpa. PTR kubernetes.default.svc.rome.example.",
		},
		{"of another address", same, hosts(usual), "2.0.81.10.in-addr.arpa.", dnsmessage.TypePTR, none},
		{
			"of an IPv6 address", same, hosts("fd00::1 kubernetes.default"),
			"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", dnsmessage.TypePTR,
			"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa. PTR kubernetes.default.svc.cluster.local.",
		},
		{"a pod without", same, hosts("10.81.0.1 db.example"), "kubernetes.default.svc.cluster.local.", dnsmessage.TypeA, none},
		{
			"a pod with what is no address", same, hosts("nonsense kubernetes.default", "fe80::1%eth0 kubernetes.default"),
			"kubernetes.default.svc.cluster.local.", dnsmessage.TypeA, none,
		},
		{
			"names of others", same, hosts("10.66.0.1 web.prod.svc.cluster.local example.com kubernetes.default.svcx"),
			"web.prod.svc.cluster.local.", dnsmessage.TypeA, none,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			kept := KeepAPIServer(c.spec)
			for _, spec := range []*corev1.PodSpec{c.spec, &kept} { // the cache has less of a pod
				q := parse(t, c.ask, c.of)
				answer := APIServerOf(spec).Answer(c.view, q, q.Size())
				if answer == nil {
					if c.want != none {
						t.Fatalf("no answer, want %s", c.want)
					}
					continue
				}
				m := unpack(t, answer)
				got := strings.Join(append(lines(m.Answers), lines(m.Additionals)...), " | ")
				if got != c.want || m.RCode != dnsmessage.RCodeSuccess || !m.Authoritative || m.ID != q.Header.ID || c.want == none {
					t.Errorf("%s %v: %q, want %q", c.ask, m.Header, got, c.want)
				}
				if c.want == "" && len(m.Authorities) != 1 {
					t.Errorf("an answer without records has the authorities %v", lines(m.Authorities))
				}
				for _, resource := range m.Answers {
					if service, ok := resource.Body.(*dnsmessage.SRVResource); ok && service.Port != 6443 {
						t.Errorf("port %d", service.Port)
					}
				}
				if c.view.AboutAPIServer(c.ask) == strings.HasSuffix(c.ask, ".arpa.") {
					t.Errorf("about the API server: %t", c.view.AboutAPIServer(c.ask))
				}
			}
		})
	}
}

// TestAPIServerEDNS: an answer has what the client asks for beside the name: it is cut where it does not fit, has a record of EDNS if the question had one, and
// nothing is answered in another class.
func TestAPIServerEDNS(t *testing.T) {
	view, server := NewView("cluster.local", milan, mapping), APIServerOf(hosts(usual))
	const port = "_https._tcp.kubernetes.default.svc.cluster.local."
	if m := unpack(t, server.Answer(view, parse(t, port, dnsmessage.TypeSRV), 60)); !m.Truncated || len(m.Answers) != 0 {
		t.Errorf("an answer that does not fit: %v, %v", m.Header, m.Answers)
	}
	if m := unpack(t, server.Answer(view, parse(t, port, dnsmessage.TypeSRV), 0)); m.Truncated || len(m.Answers) != 1 || len(m.Additionals) != 1 {
		t.Errorf("over TCP: %v, %v", m.Header, m.Answers)
	}
	q := parse(t, port, dnsmessage.TypeSRV, edns(t, 4096))
	if m := unpack(t, server.Answer(view, q, q.Size())); len(m.Additionals) != 2 || m.Additionals[1].Header.Type != dnsmessage.TypeOPT {
		t.Errorf("with EDNS: %v", m.Additionals)
	}
	q.Question.Class = dnsmessage.ClassCHAOS
	if server.Answer(view, q, 0) != nil {
		t.Error("another class is answered")
	}
	if (*APIServer)(nil).Answer(view, parse(t, port, dnsmessage.TypeSRV), 0) != nil {
		t.Error("a pod without API server is answered")
	}
}

// TestAPIServerIsBounded: a peer chooses the entries of its pods.
func TestAPIServerIsBounded(t *testing.T) {
	spec := &corev1.PodSpec{}
	for i := range 1000 {
		spec.HostAliases = append(spec.HostAliases, corev1.HostAlias{
			IP: "10.0.0.1", Hostnames: []string{fmt.Sprintf("kubernetes.default.svc.d%d", i), strings.Repeat("x", 200)},
		})
	}
	for _, value := range []string{"99999", "-1", "x", "0"} {
		spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Name: portVariable, Value: value}}}}
		kept := KeepAPIServer(spec)
		if len(kept.HostAliases) != maxAliases || len(kept.Containers) != 0 || len(kept.Volumes) != 0 {
			t.Errorf("%d entries and %d containers are kept", len(kept.HostAliases), len(kept.Containers))
		}
	}
	empty := KeepAPIServer(&corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}})
	if difference := cmp.Diff(corev1.PodSpec{}, empty); difference != "" {
		t.Error(difference)
	}
}

// TestAnyAPIServer: no pod is answered for another one, whatever domains they have.
func TestAnyAPIServer(t *testing.T) {
	for _, domains := range [][]string{{"cluster.local"}, {"cluster.local", "rome.example"}} {
		known := &Known{}
		for _, domain := range domains {
			known.all = append(known.all, NewView(domain, milan, mapping))
		}
		for _, name := range []string{
			"kubernetes.", "kubernetes.default.", "kubernetes.default.svc.", "KUBERNETES.default.svc.cluster.local.",
			"_https._tcp.kubernetes.default.svc.cluster.local.",
			"_tcp.kubernetes.default.svc.cluster.local.", "default.svc.cluster.local.",
		} {
			if known.Any(parse(t, name, dnsmessage.TypeA)) != nil {
				t.Errorf("%s has the same answer for all pods of %v", name, domains)
			}
		}
		if known.Any(parse(t, "example.com.", dnsmessage.TypeA)) == nil {
			t.Errorf("example.com waits for the pod, of %v", domains)
		}
	}
	if address := netip.MustParseAddr("10.1.2.3"); reverseName(address) != "3.2.1.10.in-addr.arpa" {
		t.Error(reverseName(address))
	}
}
