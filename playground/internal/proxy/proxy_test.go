// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path"
	"strings"
	"testing"

	"liqo.io/liqo/playground/internal/scenario"
	"liqo.io/liqo/playground/internal/topology"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func milan(t *testing.T, nodes ...scenario.Node) topology.Cluster {
	t.Helper()
	all, err := topology.New(scenario.Scenario{Network: netip.MustParsePrefix("10.210.0.0/16"), Clusters: []scenario.Cluster{
		{Name: "milan", ServiceCIDR: netip.MustParsePrefix("10.90.0.0/16"), Nodes: nodes},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return all.Clusters[0]
}

// TestPlanGolden compares the plan of each proxy with the file testdata/NAME.golden, which a reviewer reads.
func TestPlanGolden(t *testing.T) {
	c := milan(t, scenario.Node{Role: scenario.RoleControlPlane}, scenario.Node{Role: scenario.RoleWorker})
	for name, p := range map[string]Proxy{
		"nginx":       {Kind: Nginx, Listen: 80, To: 31000, Path: "/"},
		"nginx_tls":   {Kind: Nginx, Listen: 443, To: 6443, Path: "/liqo", TLS: true, ToTLS: true},
		"haproxy":     {Kind: HAProxy, Listen: 80, To: 31000, Path: "/"},
		"haproxy_tls": {Kind: HAProxy, Listen: 443, To: 6443, Path: "/liqo", TLS: true, ToTLS: true},
		"connect":     {Kind: Connect, Listen: 3128, User: "liqo", Password: "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			p.Cluster, p.Number = "milan", 2
			plan, err := New(p, c)
			if err != nil {
				t.Fatal(err)
			}
			component := plan.Machine.Components[0]
			var got strings.Builder
			fmt.Fprintf(&got, "%s, machine %s\n%s at %s\n%s: %s\npackages %s\npair %q\n", p.URL(c), plan.Machine.Name,
				plan.Endpoint.NetNS, plan.Endpoint.Port, component.Name, strings.Join(component.Argv, " "), plan.Programs.Packages, plan.Pair)
			for _, f := range plan.Files {
				if path.Base(f.Path) == "proxy.conf" {
					fmt.Fprintf(&got, "# %s\n%s", f.Path, f.Text)
				}
			}
			file := path.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("differs from %s (rewrite with -update):\n%s", file, got.String())
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	reverse := Proxy{Cluster: "milan", Number: 1, Kind: Nginx, Listen: 80, To: 31000, Path: "/"}
	forward := Proxy{Cluster: "milan", Number: 1, Kind: Connect, Listen: 3128}
	node := scenario.Node{Role: scenario.RoleControlPlane}
	for want, change := range map[string]func(p *Proxy){
		"a cluster has addresses for 4": func(p *Proxy) { p.Number = 5 },
		"--listen 0":                    func(p *Proxy) { p.Listen = 0 },
		`--kind "squid"`:                func(p *Proxy) { p.Kind = "squid" },
		"--to 0":                        func(p *Proxy) { p.To = 0 },
		`--path "liqo"`:                 func(p *Proxy) { p.Path = "liqo" },
		`--path "/; }"`:                 func(p *Proxy) { p.Path = "/; }" },
		"for --kind connect":            func(p *Proxy) { p.User = "liqo" },
		"leave --to":                    func(p *Proxy) { *p = forward; p.TLS = true },
		"give both":                     func(p *Proxy) { *p = forward; p.User = "liqo" },
		"use letters":                   func(p *Proxy) { *p = forward; p.User, p.Password = "liqo", "a b" },
	} {
		p := reverse
		change(&p)
		if _, err := New(p, milan(t, node)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	if _, err := New(reverse, milan(t)); err == nil || !strings.Contains(err.Error(), "has no nodes") {
		t.Errorf("a cluster without nodes: got error %v", err)
	}
}
